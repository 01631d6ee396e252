-- Statements that store what supersteps bring.
--
-- Each block has a name and a sentence. `{schema}` stands for the schema's name, other names in braces for
-- other blocks or words; `%(name)s` is bound.
--
-- The arrays of a commit are written as `(SELECT %(x)s::text[])`, which hides them from the planner. Seeing
-- how short they are, it would plan again for every batch, and planning takes three times as long as the
-- statement. So one plan is made and kept. (Where ANY follows, a second cast says that this is an array.)
--
-- Rows of `threads` are locked before anything else, in the order of their key. A statement that locks
-- several of them does not wait while it holds one. No statement relies on the state of its session.

-- name: commit
-- Store the commits of many threads; return the numbers of the threads whose fence held.
WITH locked AS MATERIALIZED (
    SELECT t.thread_id, t.run_id, t.epoch FROM {schema}.threads t
    WHERE t.thread_id = ANY ((SELECT %(thread)s::text[])::text[]) ORDER BY t.thread_id FOR UPDATE SKIP LOCKED
),
broken AS MATERIALIZED (
    SELECT b.n FROM unnest(
        (SELECT %(b_n)s::int4[]), (SELECT %(b_ns)s::text[]), (SELECT %(b_channel)s::text[]),
        (SELECT %(b_stands_on)s::text[])
    ) AS b (n, ns, channel, version)
    WHERE b.version IS NOT NULL AND NOT EXISTS (
        SELECT FROM {schema}.channel_blobs o
        WHERE o.thread_id = ((SELECT %(thread)s::text[])::text[])[b.n] AND o.ns = b.ns
            AND o.channel = b.channel AND o.version = b.version
    )
),
accepted AS MATERIALIZED (
    UPDATE {schema}.threads t SET
        commits = t.commits + 1,
        last_id = GREATEST(t.last_id, a.last_id),
        run_id = CASE WHEN a.status IS NULL THEN t.run_id END,
        holder = CASE WHEN a.status IS NULL THEN t.holder END,
        lease_expires = CASE WHEN a.status IS NULL THEN t.lease_expires END,
        status = COALESCE(a.status, t.status)
    FROM unnest(
        (SELECT %(thread)s::text[]), (SELECT %(run)s::text[]), (SELECT %(epoch)s::int8[]), (SELECT %(last_id)s::text[]),
        (SELECT %(status)s::text[]), (SELECT %(error)s::text[])
    ) WITH ORDINALITY AS a (thread_id, run_id, epoch, last_id, status, error, n)
    JOIN locked l USING (thread_id, run_id, epoch)
    WHERE t.thread_id = a.thread_id AND NOT EXISTS (SELECT FROM broken b WHERE b.n = a.n)
    RETURNING a.*
),
ended AS (
    UPDATE {schema}.runs r SET
        status = a.status, error = a.error, ended_at = clock_timestamp(), end_epoch = a.epoch
    FROM accepted a
    -- The list is short and mostly empty. Without it, every commit would read all of `runs` if the table was
    -- small when it was analyzed.
    WHERE r.thread_id = ANY (ARRAY(SELECT e.thread_id FROM accepted e WHERE e.status IS NOT NULL))
        AND a.status IS NOT NULL AND r.thread_id = a.thread_id AND r.run_id = a.run_id
),
{rows}
SELECT a.n FROM accepted a;

-- name: commit_one
-- Store the commits of one thread, in three quarters of the time that `commit` takes.
WITH accepted AS MATERIALIZED (
    UPDATE {schema}.threads t SET
        commits = t.commits + 1,
        last_id = GREATEST(t.last_id, %(last_id)s),
        run_id = CASE WHEN %(status)s::text IS NULL THEN t.run_id END,
        holder = CASE WHEN %(status)s::text IS NULL THEN t.holder END,
        lease_expires = CASE WHEN %(status)s::text IS NULL THEN t.lease_expires END,
        status = COALESCE(%(status)s::text, t.status)
    WHERE t.thread_id = (
        SELECT l.thread_id FROM {schema}.threads l
        WHERE l.thread_id = %(thread_id)s AND l.run_id = %(run_id)s AND l.epoch = %(epoch)s FOR UPDATE {waiting}
    ) AND NOT EXISTS (
        SELECT FROM unnest((SELECT %(b_ns)s::text[]), (SELECT %(b_channel)s::text[]), (SELECT %(b_stands_on)s::text[]))
            AS b (ns, channel, version)
        WHERE b.version IS NOT NULL AND NOT EXISTS (
            SELECT FROM {schema}.channel_blobs o
            WHERE o.thread_id = %(thread_id)s AND o.ns = b.ns AND o.channel = b.channel AND o.version = b.version
        )
    )
    RETURNING t.thread_id, t.epoch
),
ended AS (
    UPDATE {schema}.runs r SET
        status = %(status)s, error = %(error)s, ended_at = clock_timestamp(), end_epoch = %(epoch)s
    WHERE r.thread_id = %(thread_id)s AND r.run_id = %(run_id)s AND %(status)s::text IS NOT NULL
        AND EXISTS (SELECT FROM accepted)
),
{rows}
SELECT 1 AS n FROM accepted;

-- name: commit_unfenced
-- Store commits of one thread that were made without a claim.
WITH accepted AS MATERIALIZED (
    INSERT INTO {schema}.threads AS t (thread_id, commits, last_id) VALUES (%(thread_id)s, 1, %(last_id)s)
    ON CONFLICT (thread_id) DO UPDATE
        SET commits = t.commits + 1, last_id = GREATEST(t.last_id, excluded.last_id)
    RETURNING thread_id, 0::int8 AS epoch
),
{rows}
SELECT 1 AS n FROM accepted;

-- name: rows
-- Store the rows of commits; in a batch of many threads, `n` is the number of the thread.
stored_checkpoints AS (
    INSERT INTO {schema}.checkpoints
        (thread_id, ns, checkpoint_id, parent_id, epoch, format, ts, metadata, versions, seen)
    SELECT a.thread_id, c.ns, c.id, c.parent_id, a.epoch, %(checkpoint_format)s, c.ts,
        convert_from(c.metadata, 'utf8')::jsonb, c.versions, c.seen
    FROM unnest(
        {c_n} (SELECT %(c_ns)s::text[]), (SELECT %(c_id)s::text[]), (SELECT %(c_parent)s::text[]),
        (SELECT %(c_ts)s::text[]), (SELECT %(c_metadata)s::bytea[]), (SELECT %(c_versions)s::bytea[]),
        (SELECT %(c_seen)s::bytea[])
    ) AS c ({n} ns, id, parent_id, ts, metadata, versions, seen) JOIN accepted a {on_n}
    ON CONFLICT (thread_id, ns, checkpoint_id) DO UPDATE
        SET metadata = excluded.metadata, versions = excluded.versions, seen = excluded.seen, ts = excluded.ts
),
stored_blobs AS (
    INSERT INTO {schema}.channel_blobs (thread_id, ns, channel, version, base, snapshot, kept, format, payload)
    SELECT a.thread_id, b.ns, b.channel, b.version, b.base, b.snapshot, b.kept, %(format)s, b.payload
    FROM unnest(
        {b_n} (SELECT %(b_ns)s::text[]), (SELECT %(b_channel)s::text[]), (SELECT %(b_version)s::text[]),
        (SELECT %(b_base)s::text[]), (SELECT %(b_snapshot)s::text[]), (SELECT %(b_kept)s::int4[]),
        (SELECT %(b_payload)s::bytea[])
    ) AS b ({n} ns, channel, version, base, snapshot, kept, payload) JOIN accepted a {on_n}
    ON CONFLICT DO NOTHING
),
stored_writes AS (
    INSERT INTO {schema}.task_writes AS o
        (thread_id, ns, checkpoint_id, task_id, idx, format, task_path, channel, payload)
    SELECT a.thread_id, w.ns, w.id, w.task_id, w.idx, %(format)s, w.path, w.channel, w.payload
    FROM unnest(
        {w_n} (SELECT %(w_ns)s::text[]), (SELECT %(w_id)s::text[]), (SELECT %(w_task)s::text[]),
        (SELECT %(w_path)s::text[]), (SELECT %(w_idx)s::int4[]), (SELECT %(w_channel)s::text[]),
        (SELECT %(w_payload)s::bytea[])
    ) AS w ({n} ns, id, task_id, path, idx, channel, payload) JOIN accepted a {on_n}
    ON CONFLICT (thread_id, ns, checkpoint_id, task_id, idx) DO UPDATE
        SET format = excluded.format, task_path = excluded.task_path, channel = excluded.channel,
            payload = excluded.payload
        WHERE o.idx < 0
)

-- name: verdict
-- Say why commits were refused: the fence does not hold, a delta's base is missing, or the row is locked.
SELECT a.n, CASE
    WHEN t.thread_id IS NULL THEN 'stale'
    WHEN EXISTS (
        SELECT FROM unnest(%(b_n)s::int4[], %(b_ns)s::text[], %(b_channel)s::text[], %(b_stands_on)s::text[])
            AS b (n, ns, channel, version)
        WHERE b.n = a.n AND b.version IS NOT NULL AND NOT EXISTS (
            SELECT FROM {schema}.channel_blobs o
            WHERE o.thread_id = a.thread_id AND o.ns = b.ns AND o.channel = b.channel AND o.version = b.version
        )
    ) THEN 'broken'
    ELSE 'busy' END AS verdict
FROM unnest(%(thread)s::text[], %(run)s::text[], %(epoch)s::int8[])
    WITH ORDINALITY AS a (thread_id, run_id, epoch, n)
LEFT JOIN {schema}.threads t USING (thread_id, run_id, epoch);

-- name: already_committed
-- Say if a refused commit had been stored before, under the fence that no longer holds.
SELECT (cardinality(%(c_id)s::text[]) > 0 OR (%(status)s::text[])[1] IS NOT NULL)
    AND NOT EXISTS (
        SELECT FROM unnest(%(c_ns)s::text[], %(c_id)s::text[]) k (ns, id) WHERE NOT EXISTS (
            SELECT FROM {schema}.checkpoints c
            WHERE c.thread_id = (%(thread)s::text[])[1] AND c.ns = k.ns AND c.checkpoint_id = k.id
                AND c.epoch = (%(epoch)s::int8[])[1]
        )
    )
    AND NOT EXISTS (
        SELECT FROM unnest(%(w_ns)s::text[], %(w_id)s::text[], %(w_task)s::text[], %(w_idx)s::int4[])
            k (ns, id, task_id, idx) WHERE NOT EXISTS (
            SELECT FROM {schema}.task_writes w
            WHERE w.thread_id = (%(thread)s::text[])[1] AND w.ns = k.ns AND w.checkpoint_id = k.id
                AND w.task_id = k.task_id AND w.idx = k.idx
        )
    )
    AND ((%(status)s::text[])[1] IS NULL OR EXISTS (
        SELECT FROM {schema}.runs r
        WHERE r.thread_id = (%(thread)s::text[])[1] AND r.run_id = (%(run)s::text[])[1]
            AND r.end_epoch = (%(epoch)s::int8[])[1] AND r.status = (%(status)s::text[])[1]
            AND r.error IS NOT DISTINCT FROM (%(error)s::text[])[1]
    )) AS stored;
