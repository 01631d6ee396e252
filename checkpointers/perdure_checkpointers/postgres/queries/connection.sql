-- Statements about a connection itself.
--
-- Each block has a name and a sentence. `{schema}` stands for the schema's name, other names in braces for
-- other blocks or words; `%(name)s` is bound.

-- name: proof
-- Ask which process serves this connection, and how its transactions are isolated.
SELECT pg_catalog.pg_backend_pid() AS pid, pg_catalog.current_setting('default_transaction_isolation') AS isolation,
    {settings} AS settings;

-- name: settings
-- Plan statements once and by key. Not behind a pooler, where a setting would be another client's, too.
-- The statistics of a young or small table lead to plans that read all of it, which takes twice as long.
CASE WHEN pg_catalog.pg_backend_pid() = %(pid)s THEN ARRAY[
    pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
    pg_catalog.set_config('enable_seqscan', 'off', false),
    pg_catalog.set_config('enable_mergejoin', 'off', false),
    pg_catalog.set_config('jit', 'off', false)
] END

-- name: stop
-- Stop a statement that ran out of time on a connection that is gone.
SELECT pg_catalog.pg_cancel_backend(a.pid) AS stopped FROM pg_catalog.pg_stat_activity a
WHERE a.pid = %(pid)s AND a.state = 'active' AND clock_timestamp() - a.query_start > %(seconds)s * interval '1 second';
