-- Statements that take threads for runs, keep them and give them back.
--
-- Each block has a name and a sentence. `{schema}` stands for the schema's name, other names in braces for
-- other blocks or words; `%(name)s` is bound.
--
-- Rows of `threads` are locked before anything else, in the order of their key. A statement that locks
-- several of them does not wait while it holds one. No statement relies on the state of its session.

-- name: claim_free
-- Take the threads of a batch that are new, or free and not locked; record their runs and read their checkpoints.
WITH before AS MATERIALIZED (
    SELECT t.thread_id, t.epoch, t.commits FROM {schema}.threads t
    WHERE t.thread_id = ANY ((SELECT %(thread)s::text[])::text[])
),
locked AS MATERIALIZED (
    SELECT t.thread_id FROM {schema}.threads t
    WHERE t.thread_id = ANY ((SELECT %(thread)s::text[])::text[]) AND t.run_id IS NULL
    ORDER BY t.thread_id FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE {schema}.threads t SET
        epoch = t.epoch + 1, run_id = a.run_id, holder = a.holder, claimed_at = clock_timestamp(),
        lease_expires = clock_timestamp() + %(lease)s * interval '1 second', status = 'running'
    FROM unnest((SELECT %(thread)s::text[]), (SELECT %(run)s::text[]), (SELECT %(holder)s::text[]))
        AS a (thread_id, run_id, holder)
    JOIN locked l USING (thread_id)
    WHERE t.thread_id = a.thread_id
    RETURNING t.thread_id, t.epoch, t.commits, t.last_id
),
made AS (
    INSERT INTO {schema}.threads (thread_id, epoch, run_id, holder, claimed_at, lease_expires, status)
    SELECT a.thread_id, 1, a.run_id, a.holder, clock_timestamp(),
        clock_timestamp() + %(lease)s * interval '1 second', 'running'
    FROM unnest((SELECT %(thread)s::text[]), (SELECT %(run)s::text[]), (SELECT %(holder)s::text[]))
        AS a (thread_id, run_id, holder)
    WHERE NOT EXISTS (SELECT FROM before b WHERE b.thread_id = a.thread_id)
    ORDER BY a.thread_id
    ON CONFLICT DO NOTHING
    RETURNING thread_id, epoch, commits, last_id
),
claimed AS MATERIALIZED (SELECT * FROM taken UNION ALL SELECT * FROM made),
recorded AS (
    INSERT INTO {schema}.runs
        (thread_id, run_id, epoch, ns, graph, signature, durability, status, format, config, input)
    SELECT k.thread_id, a.run_id, k.epoch, a.ns, a.graph, a.signature, a.durability, 'running', %(format)s,
        convert_from(a.config, 'utf8')::json, a.input
    FROM unnest(
        (SELECT %(thread)s::text[]), (SELECT %(run)s::text[]), (SELECT %(ns)s::text[]),
        (SELECT %(graph)s::text[]), (SELECT %(signature)s::text[]), (SELECT %(durability)s::text[]),
        (SELECT %(config)s::bytea[]), (SELECT %(input)s::bytea[])
    ) AS a (thread_id, run_id, ns, graph, signature, durability, config, input) JOIN claimed k USING (thread_id)
    {record_again}
)
SELECT {head},
    k.epoch, k.last_id, 1 AS attempt,
    k.commits = COALESCE(b.commits, 0) AND k.epoch = COALESCE(b.epoch, 0) + 1 AS head_is_current,
    k.thread_id
FROM claimed k
JOIN unnest((SELECT %(thread)s::text[]), (SELECT %(ns)s::text[])) AS a (thread_id, ns) USING (thread_id)
LEFT JOIN before b USING (thread_id)
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.checkpoints c WHERE c.thread_id = k.thread_id AND c.ns = a.ns
    ORDER BY c.checkpoint_id DESC LIMIT 1
) c ON true
{values}
{writes};

-- name: claim
-- Take a free thread for a new run, record the run, and read the checkpoint that it starts from.
WITH before AS MATERIALIZED (
    SELECT t.epoch, t.commits, t.run_id, t.holder, t.claimed_at,
        t.lease_expires >= clock_timestamp() AS live
    FROM {schema}.threads t WHERE t.thread_id = %(thread)s
),
again AS MATERIALIZED (
    SELECT r.epoch FROM {schema}.runs r JOIN before b USING (run_id, epoch)
    WHERE r.thread_id = %(thread)s AND r.run_id = %(run)s AND b.holder = %(holder)s
),
claimed AS (
    INSERT INTO {schema}.threads AS t (thread_id, epoch, run_id, holder, claimed_at, lease_expires, status)
    VALUES (
        %(thread)s, 1, %(run)s, %(holder)s, clock_timestamp(),
        clock_timestamp() + %(lease)s * interval '1 second', 'running'
    )
    ON CONFLICT (thread_id) DO UPDATE SET
        epoch = t.epoch + (t.epoch IS DISTINCT FROM (SELECT epoch FROM again))::int,
        run_id = excluded.run_id, holder = excluded.holder, claimed_at = excluded.claimed_at,
        lease_expires = excluded.lease_expires, status = excluded.status
    WHERE t.run_id IS NULL OR t.lease_expires < clock_timestamp() OR t.epoch = (SELECT epoch FROM again)
    RETURNING epoch, commits, last_id
),
recorded AS (
    INSERT INTO {schema}.runs AS r
        (thread_id, run_id, epoch, ns, graph, signature, durability, status, format, config, input)
    SELECT %(thread)s, %(run)s, k.epoch, %(ns)s, %(graph)s, %(signature)s, %(durability)s, 'running', %(format)s,
        %(config)s::json, %(input)s
    FROM claimed k
    {record_again}
    WHERE r.epoch <> excluded.epoch
),
superseded AS (
    UPDATE {schema}.runs r SET
        status = 'error', ended_at = clock_timestamp(),
        error = 'its lease ran out; run ' || %(run)s || ' took the thread'
    FROM claimed k
    WHERE r.thread_id = %(thread)s AND r.run_id <> %(run)s AND r.status = 'running'
)
SELECT {head},
    k.epoch, k.last_id, 1 AS attempt,
    k.commits = COALESCE(b.commits, 0)
        AND k.epoch = COALESCE((SELECT epoch FROM again), b.epoch + 1, 1) AS head_is_current,
    b.run_id, b.holder, b.claimed_at, b.live
FROM (SELECT) one
LEFT JOIN before b ON true
LEFT JOIN claimed k ON true
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.checkpoints c WHERE c.thread_id = %(thread)s AND c.ns = %(ns)s {addressed}
    ORDER BY c.checkpoint_id DESC LIMIT 1
) c ON k.epoch IS NOT NULL
{values}
{writes};

-- name: claim_orphan
-- Take a thread for the run that holds it, if its lease ran out; read the checkpoint that it continues from.
WITH before AS MATERIALIZED (
    SELECT t.epoch, t.commits, t.run_id, t.holder, t.claimed_at,
        t.lease_expires >= clock_timestamp() AS live
    FROM {schema}.threads t WHERE t.thread_id = %(thread)s
),
claimed AS (
    UPDATE {schema}.threads t SET
        epoch = %(successor_of)s + 1, holder = %(holder)s,
        claimed_at = CASE WHEN t.epoch = %(successor_of)s THEN clock_timestamp() ELSE t.claimed_at END,
        lease_expires = clock_timestamp() + %(lease)s * interval '1 second'
    WHERE t.thread_id = %(thread)s AND t.run_id = %(run)s AND (
        t.epoch = %(successor_of)s AND t.lease_expires < clock_timestamp()
        OR t.epoch = %(successor_of)s + 1 AND t.holder = %(holder)s
    )
    RETURNING t.epoch, t.commits, t.last_id
),
recorded AS (
    UPDATE {schema}.runs r SET attempt = r.attempt + (b.epoch = %(successor_of)s)::int
    FROM claimed k, before b
    WHERE r.thread_id = %(thread)s AND r.run_id = %(run)s
    RETURNING r.attempt
)
SELECT {head},
    k.epoch, k.last_id, r.attempt,
    k.commits = b.commits AND b.epoch IN (%(successor_of)s, %(successor_of)s + 1) AS head_is_current,
    b.run_id, b.holder, b.claimed_at, b.live
FROM (SELECT) one
LEFT JOIN before b ON true
LEFT JOIN claimed k ON true
LEFT JOIN recorded r ON true
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.checkpoints c WHERE c.thread_id = %(thread)s AND c.ns = %(ns)s {addressed}
    ORDER BY c.checkpoint_id DESC LIMIT 1
) c ON k.epoch IS NOT NULL
{values}
{writes};

-- name: record_again
-- Record a run that begins again under its id, on a thread that it had given back.
ON CONFLICT (thread_id, run_id) DO UPDATE SET
    epoch = excluded.epoch, end_epoch = NULL, attempt = 1, ns = excluded.ns, graph = excluded.graph,
    signature = excluded.signature, durability = excluded.durability, status = 'running',
    format = excluded.format, started_at = clock_timestamp(), ended_at = NULL, error = NULL,
    config = excluded.config, input = excluded.input

-- name: holder
-- Read which run holds a thread, and since when.
SELECT t.run_id, t.holder, t.claimed_at, t.lease_expires >= clock_timestamp() AS live
FROM {schema}.threads t WHERE t.thread_id = %(thread)s;

-- name: abandon
-- End a claim whose answer nobody waited for, if it was granted.
WITH released AS (
    UPDATE {schema}.threads t SET run_id = NULL, holder = NULL, lease_expires = NULL, status = 'cancelled'
    WHERE t.thread_id = %(thread)s AND t.run_id = %(run)s AND t.holder = %(holder)s
    RETURNING t.thread_id
)
UPDATE {schema}.runs r SET status = 'cancelled', ended_at = clock_timestamp(), error = 'cancelled while it was claiming'
FROM released WHERE r.thread_id = released.thread_id AND r.run_id = %(run)s;

-- name: renew
-- Renew the claims of this process; say of each if it still holds, or null if its row was locked.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%(thread)s::text[], %(run)s::text[], %(epoch)s::int8[])
        WITH ORDINALITY AS a (thread_id, run_id, epoch, n)
),
locked AS MATERIALIZED (
    SELECT t.thread_id, t.run_id, t.epoch FROM {schema}.threads t
    WHERE t.thread_id = ANY (%(thread)s::text[]) ORDER BY t.thread_id FOR UPDATE SKIP LOCKED
),
held AS MATERIALIZED (
    SELECT a.n, a.thread_id FROM asked a JOIN locked l USING (thread_id, run_id, epoch)
),
renewed AS (
    UPDATE {schema}.threads t SET lease_expires = clock_timestamp() + %(lease)s * interval '1 second'
    FROM held WHERE t.thread_id = held.thread_id
)
SELECT a.n, CASE
    WHEN EXISTS (SELECT FROM held WHERE held.n = a.n) THEN true
    WHEN EXISTS (SELECT FROM locked l WHERE l.thread_id = a.thread_id) THEN false
    WHEN EXISTS (SELECT FROM {schema}.threads t WHERE t.thread_id = a.thread_id) THEN NULL
    ELSE false END AS holds
FROM asked a;

-- name: orphans
-- List the runs that hold their thread although their lease ran out, oldest first.
SELECT r.thread_id, r.run_id, t.epoch, r.graph, r.signature, r.input, r.config, r.durability, r.attempt,
    COALESCE((
        SELECT c.epoch >= r.epoch FROM {schema}.checkpoints c
        WHERE c.thread_id = r.thread_id AND c.ns = r.ns AND c.epoch > 0
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ), false) AS started
FROM {schema}.runs r
JOIN {schema}.threads t ON t.thread_id = r.thread_id AND t.run_id = r.run_id
WHERE r.status = 'running' AND t.lease_expires < clock_timestamp()
    AND (%(graph)s::text IS NULL OR r.graph = %(graph)s)
    AND (%(thread)s::text IS NULL OR r.thread_id = %(thread)s)
ORDER BY t.lease_expires, r.thread_id
LIMIT %(limit)s;
