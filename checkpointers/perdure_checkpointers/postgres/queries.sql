-- What the saver says to Postgres. Each block has a name and a sentence. `{schema}` stands for the
-- schema's name and `{waiting}` for what a lock does when somebody else has the row; `%(name)s` is bound.
--
-- The arrays of a commit are written as `(SELECT %(x)s)`, which hides them from the planner: seeing how
-- short they are, it would find a plan of its own for every single batch, and planning costs three
-- times what the statement does. So one plan is made and kept. (The arrays carry their types.)
--
-- Rules: rows of `threads` are locked in the order of their key, and before anything else; a
-- statement that locks several of them does not wait while it holds one, or runs in key order. No
-- statement relies on session state.

-- name: proof
-- What tells whether this connection is Postgres itself, and how its transactions are isolated.
SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('default_transaction_isolation') {settings};

-- name: settings
-- How statements are planned: once, by key; not behind a pooler, where a setting would be another client's too.
-- Statistics of a young or a small table lead to plans that read all of it, and take twice as long.
, CASE WHEN pg_catalog.pg_backend_pid() = %(pid)s THEN ARRAY[
    pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
    pg_catalog.set_config('enable_seqscan', 'off', false),
    pg_catalog.set_config('enable_mergejoin', 'off', false),
    pg_catalog.set_config('jit', 'off', false)
] END

-- name: stop
-- Stops a statement that ran out of time on a connection that is gone.
SELECT pg_catalog.pg_cancel_backend(a.pid) FROM pg_catalog.pg_stat_activity a
WHERE a.pid = %(pid)s AND a.state = 'active' AND clock_timestamp() - a.query_start > %(seconds)s * interval '1 second';

-- name: commit
-- Stores what the accepted ones of a batch of commits hold, one per thread, and says which they are.
WITH locked AS MATERIALIZED (
    SELECT t.thread_id, t.run_id, t.epoch FROM {schema}.threads t
    WHERE t.thread_id = ANY ((SELECT %(thread)s)::text[]) ORDER BY t.thread_id FOR UPDATE SKIP LOCKED
),
broken AS MATERIALIZED (
    SELECT b.n FROM unnest((SELECT %(b_n)s), (SELECT %(b_ns)s), (SELECT %(b_channel)s), (SELECT %(b_stands_on)s))
        AS b (n, ns, channel, version)
    WHERE b.version IS NOT NULL AND NOT EXISTS (
        SELECT FROM {schema}.channel_blobs o
        WHERE o.thread_id = ((SELECT %(thread)s)::text[])[b.n] AND o.ns = b.ns AND o.channel = b.channel AND o.version = b.version
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
        (SELECT %(thread)s), (SELECT %(run)s), (SELECT %(epoch)s), (SELECT %(last_id)s),
        (SELECT %(status)s), (SELECT %(error)s)
    ) WITH ORDINALITY AS a (thread_id, run_id, epoch, last_id, status, error, n)
    JOIN locked l USING (thread_id, run_id, epoch)
    WHERE t.thread_id = a.thread_id AND NOT EXISTS (SELECT FROM broken b WHERE b.n = a.n)
    RETURNING a.*
),
ended AS (
    UPDATE {schema}.runs r SET
        status = a.status, error = a.error, ended_at = clock_timestamp(), end_epoch = a.epoch
    FROM accepted a
    -- The list is short, and mostly empty. Without it, where `runs` was small when it was analyzed, all
    -- of it is read by every commit.
    WHERE r.thread_id = ANY (ARRAY(SELECT e.thread_id FROM accepted e WHERE e.status IS NOT NULL))
        AND a.status IS NOT NULL AND r.thread_id = a.thread_id AND r.run_id = a.run_id
),
{rows}
SELECT a.n FROM accepted a;

-- name: commit_one
-- Does what `commit` does for a single thread, in three quarters of the time.
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
        SELECT FROM unnest((SELECT %(b_ns)s), (SELECT %(b_channel)s), (SELECT %(b_stands_on)s))
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
SELECT 1 FROM accepted;

-- name: verdict
-- Why a commit was not accepted: its fence does not hold, or what it stands on is missing, or its row is locked.
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
    ELSE 'busy' END
FROM unnest(%(thread)s::text[], %(run)s::text[], %(epoch)s::int8[])
    WITH ORDINALITY AS a (thread_id, run_id, epoch, n)
LEFT JOIN {schema}.threads t USING (thread_id, run_id, epoch);

-- name: commit_unfenced
-- Stores what one thread's commits without a claim hold.
WITH accepted AS MATERIALIZED (
    INSERT INTO {schema}.threads AS t (thread_id, commits, last_id) VALUES (%(thread_id)s, 1, %(last_id)s)
    ON CONFLICT (thread_id) DO UPDATE
        SET commits = t.commits + 1, last_id = GREATEST(t.last_id, excluded.last_id)
    RETURNING thread_id, 0::int8 AS epoch
),
{rows}
SELECT 1 FROM accepted;

-- name: rows
-- The part of a commit that stores rows; of many threads, `n` says for which of the `accepted`.
stored_checkpoints AS (
    INSERT INTO {schema}.checkpoints
        (thread_id, ns, checkpoint_id, parent_id, epoch, format, ts, metadata, versions, seen)
    SELECT a.thread_id, c.ns, c.id, c.parent_id, a.epoch, %(checkpoint_format)s, c.ts,
        convert_from(c.metadata, 'utf8')::jsonb, c.versions, c.seen
    FROM unnest(
        {c_n} (SELECT %(c_ns)s), (SELECT %(c_id)s), (SELECT %(c_parent)s), (SELECT %(c_ts)s),
        (SELECT %(c_metadata)s), (SELECT %(c_versions)s), (SELECT %(c_seen)s)
    ) AS c ({n} ns, id, parent_id, ts, metadata, versions, seen) JOIN accepted a {on_n}
    ON CONFLICT (thread_id, ns, checkpoint_id) DO UPDATE
        SET metadata = excluded.metadata, versions = excluded.versions, seen = excluded.seen, ts = excluded.ts
),
stored_blobs AS (
    INSERT INTO {schema}.channel_blobs (thread_id, ns, channel, version, base, snapshot, kept, format, payload)
    SELECT a.thread_id, b.ns, b.channel, b.version, b.base, b.snapshot, b.kept, %(format)s, b.payload
    FROM unnest(
        {b_n} (SELECT %(b_ns)s), (SELECT %(b_channel)s), (SELECT %(b_version)s),
        (SELECT %(b_base)s), (SELECT %(b_snapshot)s), (SELECT %(b_kept)s), (SELECT %(b_payload)s)
    ) AS b ({n} ns, channel, version, base, snapshot, kept, payload) JOIN accepted a {on_n}
    ON CONFLICT DO NOTHING
),
stored_writes AS (
    INSERT INTO {schema}.task_writes AS o
        (thread_id, ns, checkpoint_id, task_id, idx, format, task_path, channel, payload)
    SELECT a.thread_id, w.ns, w.id, w.task_id, w.idx, %(format)s, w.path, w.channel, w.payload
    FROM unnest(
        {w_n} (SELECT %(w_ns)s), (SELECT %(w_id)s), (SELECT %(w_task)s), (SELECT %(w_path)s),
        (SELECT %(w_idx)s), (SELECT %(w_channel)s), (SELECT %(w_payload)s)
    ) AS w ({n} ns, id, task_id, path, idx, channel, payload) JOIN accepted a {on_n}
    ON CONFLICT (thread_id, ns, checkpoint_id, task_id, idx) DO UPDATE
        SET format = excluded.format, task_path = excluded.task_path, channel = excluded.channel,
            payload = excluded.payload
        WHERE o.idx < 0
)

-- name: already_committed
-- Whether all of a refused commit had been stored before, under the fence that no longer holds.
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
    ));

-- name: claim_free
-- Takes those threads of a batch that are free and unlocked, or new; records their runs, and reads what they start from.
WITH before AS MATERIALIZED (
    SELECT t.thread_id, t.epoch, t.commits FROM {schema}.threads t
    WHERE t.thread_id = ANY ((SELECT %(thread)s)::text[])
),
locked AS MATERIALIZED (
    SELECT t.thread_id FROM {schema}.threads t
    WHERE t.thread_id = ANY ((SELECT %(thread)s)::text[]) AND t.run_id IS NULL
    ORDER BY t.thread_id FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE {schema}.threads t SET
        epoch = t.epoch + 1, run_id = a.run_id, holder = a.holder, claimed_at = clock_timestamp(),
        lease_expires = clock_timestamp() + %(lease)s * interval '1 second', status = 'running'
    FROM unnest((SELECT %(thread)s), (SELECT %(run)s), (SELECT %(holder)s)) AS a (thread_id, run_id, holder)
    JOIN locked l USING (thread_id)
    WHERE t.thread_id = a.thread_id
    RETURNING t.thread_id, t.epoch, t.commits, t.last_id
),
made AS (
    INSERT INTO {schema}.threads (thread_id, epoch, run_id, holder, claimed_at, lease_expires, status)
    SELECT a.thread_id, 1, a.run_id, a.holder, clock_timestamp(),
        clock_timestamp() + %(lease)s * interval '1 second', 'running'
    FROM unnest((SELECT %(thread)s), (SELECT %(run)s), (SELECT %(holder)s)) AS a (thread_id, run_id, holder)
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
        (SELECT %(thread)s), (SELECT %(run)s), (SELECT %(ns)s), (SELECT %(graph)s), (SELECT %(signature)s),
        (SELECT %(durability)s), (SELECT %(config)s), (SELECT %(input)s)
    ) AS a (thread_id, run_id, ns, graph, signature, durability, config, input) JOIN claimed k USING (thread_id)
    {record_again}
)
SELECT k.thread_id, k.epoch, k.last_id,
    k.commits = COALESCE(b.commits, 0) AND k.epoch = COALESCE(b.epoch, 0) + 1 AS head_is_current,
    {head}
FROM claimed k
JOIN unnest((SELECT %(thread)s), (SELECT %(ns)s)) AS a (thread_id, ns) USING (thread_id)
LEFT JOIN before b USING (thread_id)
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.checkpoints c WHERE c.thread_id = k.thread_id AND c.ns = a.ns
    ORDER BY c.checkpoint_id DESC LIMIT 1
) c ON true
{values}
{writes};

-- name: record_again
-- A run that begins again under its id, on a thread that it gave back.
ON CONFLICT (thread_id, run_id) DO UPDATE SET
    epoch = excluded.epoch, end_epoch = NULL, attempt = 1, ns = excluded.ns, graph = excluded.graph,
    signature = excluded.signature, durability = excluded.durability, status = 'running',
    format = excluded.format, started_at = clock_timestamp(), ended_at = NULL, error = NULL,
    config = excluded.config, input = excluded.input

-- name: claim
-- Takes a free thread for a new run, records the run, and reads the checkpoint that it starts from.
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
SELECT k.epoch, k.last_id, 1 AS attempt,
    b.run_id, b.holder, b.claimed_at, b.live,
    k.commits = COALESCE(b.commits, 0)
        AND k.epoch = COALESCE((SELECT epoch FROM again), b.epoch + 1, 1) AS head_is_current,
    {head}
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
-- Takes a thread for the run that holds it already, if its lease ran out; and reads where it continues.
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
SELECT k.epoch, k.last_id, r.attempt,
    b.run_id, b.holder, b.claimed_at, b.live,
    k.commits = b.commits AND b.epoch IN (%(successor_of)s, %(successor_of)s + 1) AS head_is_current,
    {head}
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

-- name: holder
-- Who holds a thread, and since when.
SELECT t.run_id, t.holder, t.claimed_at, t.lease_expires >= clock_timestamp() AS live
FROM {schema}.threads t WHERE t.thread_id = %(thread)s;

-- name: abandon
-- Ends a claim whose answer nobody waited for, if it was granted.
WITH released AS (
    UPDATE {schema}.threads t SET run_id = NULL, holder = NULL, lease_expires = NULL, status = 'cancelled'
    WHERE t.thread_id = %(thread)s AND t.run_id = %(run)s AND t.holder = %(holder)s
    RETURNING t.thread_id
)
UPDATE {schema}.runs r SET status = 'cancelled', ended_at = clock_timestamp(), error = 'cancelled while it was claiming'
FROM released WHERE r.thread_id = released.thread_id AND r.run_id = %(run)s;

-- name: renew
-- Makes the claims of this process last, and answers for each: whether it still holds, null if it was locked.
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
    ELSE false END
FROM asked a;

-- name: orphans
-- Runs that still hold their thread but whose lease ran out, oldest first.
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
    AND (%(thread)s::text IS NULL OR r.thread_id = %(thread)s)
ORDER BY t.lease_expires, r.thread_id
LIMIT %(limit)s;

-- name: get
-- One checkpoint of a thread with its values and pending writes.
SELECT {head}
FROM (
    SELECT * FROM {schema}.checkpoints c WHERE c.thread_id = %(thread)s AND c.ns = %(ns)s {addressed}
    ORDER BY c.checkpoint_id DESC LIMIT 1
) c
{values}
{writes};

-- name: addressed
-- The condition of a checkpoint that is asked for by its id.
AND c.checkpoint_id = %(id)s

-- name: head
-- A checkpoint `c` as readers need it: its row, whether all of it is in a format they read, writes, values.
c.checkpoint_id, c.parent_id, c.ts, c.versions, c.seen, c.metadata,
c.format = %(checkpoint_format)s AND COALESCE(v.known, true) AND COALESCE(w.known, true) AS known,
w.task_ids, w.task_paths, w.places, w.channels, w.payloads, v.channels, v.versions, v.payloads, v.bases, v.kepts, v.snapshots

-- name: values
-- The values of the checkpoint `c`: each key looked up by itself, so that a long thread costs no more;
-- and what a delta stands on, by one range scan.
LEFT JOIN LATERAL (
    SELECT array_agg(n.key) AS channels, array_agg(b.version) AS versions, array_agg(b.payload) AS payloads,
        array_agg(b.base) AS bases, array_agg(b.kept) AS kepts, array_agg(b.snapshot) AS snapshots,
        bool_and(b.format = %(format)s) AS known
    FROM jsonb_each_text(convert_from(c.versions, 'utf8')::jsonb) n
    CROSS JOIN LATERAL (
        SELECT * FROM {schema}.channel_blobs o
        WHERE o.thread_id = c.thread_id AND o.ns = c.ns AND o.channel = n.key AND o.version = n.value LIMIT 1
    ) t
    CROSS JOIN LATERAL (
        SELECT t.version, t.payload, t.base, t.kept, t.snapshot, t.format
        UNION ALL
        SELECT o.version, o.payload, o.base, o.kept, o.snapshot, o.format FROM {schema}.channel_blobs o
        WHERE t.snapshot IS NOT NULL AND o.thread_id = c.thread_id AND o.ns = c.ns AND o.channel = n.key
            AND o.version >= t.snapshot AND o.version < t.version
    ) b
) v ON true

-- name: writes
-- The pending writes of the checkpoint `c`.
LEFT JOIN LATERAL (
    SELECT array_agg(o.task_id) AS task_ids, array_agg(o.task_path) AS task_paths, array_agg(o.idx) AS places,
        array_agg(o.channel) AS channels, array_agg(o.payload) AS payloads,
        bool_and(o.format = %(format)s) AS known
    FROM {schema}.task_writes o
    WHERE o.thread_id = c.thread_id AND o.ns = c.ns AND o.checkpoint_id = c.checkpoint_id
) w ON true

-- name: page
-- Some checkpoints with their pending writes, newest first; their values are fetched by `page_blobs`.
SELECT c.thread_id, c.ns, c.checkpoint_id, c.parent_id, c.ts, c.versions, c.seen, c.metadata,
    c.format = %(checkpoint_format)s AND COALESCE(w.known, true) AS known,
    w.task_ids, w.task_paths, w.places, w.channels, w.payloads
FROM (
    SELECT * FROM {schema}.checkpoints c WHERE true {conditions}
    ORDER BY c.checkpoint_id DESC, c.thread_id, c.ns LIMIT %(limit)s
) c
{writes}
ORDER BY c.checkpoint_id DESC, c.thread_id, c.ns;

-- name: of_thread
-- A condition of `page`.
AND c.thread_id = %(thread)s

-- name: of_namespace
-- A condition of `page`.
AND c.ns = %(ns)s

-- name: older_than
-- A condition of `page`: ids that are smaller than this one.
AND c.checkpoint_id < %(before)s

-- name: matching
-- A condition of `page`: metadata that has all of these keys, with equal values.
AND c.metadata @> %(filter)s::jsonb
AND NOT EXISTS (SELECT FROM jsonb_each(%(filter)s::jsonb) f WHERE c.metadata -> f.key <> f.value)

-- name: after
-- A condition of `page`: what follows the last row of the page before, in the order of `page`.
AND c.checkpoint_id <= %(last_id)s
AND (c.checkpoint_id < %(last_id)s OR (c.thread_id, c.ns) > (%(last_thread)s, %(last_ns)s))

-- name: page_blobs
-- The values of a page, and what they stand on; a chain that several of them share once.
WITH wanted AS MATERIALIZED (
    SELECT n.thread_id, n.ns, n.channel, COALESCE(t.snapshot, t.version) AS oldest, max(t.version) AS newest
    FROM unnest(%(thread)s::text[], %(ns)s::text[], %(channel)s::text[], %(version)s::text[])
        AS n (thread_id, ns, channel, version)
    CROSS JOIN LATERAL (
        SELECT o.version, o.snapshot FROM {schema}.channel_blobs o
        WHERE o.thread_id = n.thread_id AND o.ns = n.ns AND o.channel = n.channel AND o.version = n.version LIMIT 1
    ) t
    GROUP BY 1, 2, 3, 4
)
SELECT w.thread_id, b.format = %(format)s AS known,
    w.ns, w.channel, b.version, b.payload, b.base, b.kept, b.snapshot
FROM wanted w
CROSS JOIN LATERAL (
    SELECT * FROM {schema}.channel_blobs o
    WHERE o.thread_id = w.thread_id AND o.ns = w.ns AND o.channel = w.channel
        AND o.version >= w.oldest AND o.version <= w.newest
    OFFSET 0
) b;

-- name: lock_threads
-- Locks threads that are to be changed as a whole.
SELECT t.thread_id FROM {schema}.threads t WHERE t.thread_id = ANY (%(threads)s::text[]) ORDER BY t.thread_id FOR UPDATE;

-- name: delete_threads
-- Deletes everything of the locked threads.
WITH a AS (DELETE FROM {schema}.checkpoints WHERE thread_id = ANY (%(threads)s::text[])),
    b AS (DELETE FROM {schema}.channel_blobs WHERE thread_id = ANY (%(threads)s::text[])),
    c AS (DELETE FROM {schema}.task_writes WHERE thread_id = ANY (%(threads)s::text[])),
    d AS (DELETE FROM {schema}.runs WHERE thread_id = ANY (%(threads)s::text[]))
DELETE FROM {schema}.threads WHERE thread_id = ANY (%(threads)s::text[]);

-- name: prune_threads
-- Deletes all but the newest checkpoint of every namespace of the locked threads, with their writes.
WITH latest AS MATERIALIZED (
    SELECT DISTINCT ON (c.thread_id, c.ns) c.thread_id, c.ns, c.checkpoint_id FROM {schema}.checkpoints c
    WHERE c.thread_id = ANY (%(threads)s::text[])
    ORDER BY c.thread_id, c.ns, c.checkpoint_id DESC
),
pruned AS (
    DELETE FROM {schema}.checkpoints c USING latest l
    WHERE c.thread_id = l.thread_id AND c.ns = l.ns AND c.checkpoint_id < l.checkpoint_id
),
written AS (
    DELETE FROM {schema}.task_writes w USING latest l
    WHERE w.thread_id = l.thread_id AND w.ns = l.ns AND w.checkpoint_id <> l.checkpoint_id
),
orphaned AS (
    UPDATE {schema}.checkpoints c SET parent_id = NULL FROM latest l
    WHERE c.thread_id = l.thread_id AND c.ns = l.ns AND c.checkpoint_id = l.checkpoint_id
)
UPDATE {schema}.threads SET commits = commits + 1 WHERE thread_id = ANY (%(threads)s::text[]);

-- name: delete_unused_blobs
-- Deletes the values of the locked threads that no checkpoint refers to and no delta stands on any more.
WITH RECURSIVE used AS (
    SELECT c.thread_id, c.ns, n.key COLLATE "C" AS channel, n.value COLLATE "C" AS version
    FROM {schema}.checkpoints c, jsonb_each_text(convert_from(c.versions, 'utf8')::jsonb) n
    WHERE c.thread_id = ANY (%(threads)s::text[])
    UNION
    SELECT b.thread_id, b.ns, b.channel, b.base
    FROM used u JOIN {schema}.channel_blobs b USING (thread_id, ns, channel, version)
    WHERE b.base IS NOT NULL
)
DELETE FROM {schema}.channel_blobs b
WHERE b.thread_id = ANY (%(threads)s::text[]) AND NOT EXISTS (
    SELECT FROM used u
    WHERE u.thread_id = b.thread_id AND u.ns = b.ns AND u.channel = b.channel AND u.version = b.version
);

-- name: threads_of_runs
-- The threads that these runs have left something on.
SELECT thread_id FROM {schema}.checkpoints WHERE metadata ->> 'run_id' = ANY (%(runs)s::text[])
UNION SELECT thread_id FROM {schema}.runs WHERE run_id = ANY (%(runs)s::text[]);

-- name: delete_runs
-- Deletes the checkpoints of these runs on the locked threads, with their writes.
WITH gone AS (
    DELETE FROM {schema}.checkpoints
    WHERE thread_id = ANY (%(threads)s::text[]) AND metadata ->> 'run_id' = ANY (%(runs)s::text[])
    RETURNING thread_id, ns, checkpoint_id
),
written AS (
    DELETE FROM {schema}.task_writes w USING gone g
    WHERE w.thread_id = g.thread_id AND w.ns = g.ns AND w.checkpoint_id = g.checkpoint_id
),
ran AS (
    DELETE FROM {schema}.runs WHERE thread_id = ANY (%(threads)s::text[]) AND run_id = ANY (%(runs)s::text[])
)
UPDATE {schema}.threads SET commits = commits + 1 WHERE thread_id = ANY (%(threads)s::text[]);

-- name: copy_target
-- Makes and locks the thread that another one is copied into, if that one has anything.
INSERT INTO {schema}.threads AS t (thread_id, commits, last_id, metadata)
SELECT %(target)s, 1, s.last_id, s.metadata FROM {schema}.threads s
WHERE s.thread_id = %(source)s AND EXISTS (SELECT FROM {schema}.checkpoints c WHERE c.thread_id = s.thread_id)
ON CONFLICT (thread_id) DO UPDATE SET commits = t.commits + 1, last_id = GREATEST(t.last_id, excluded.last_id)
RETURNING t.thread_id;

-- name: copy_thread
-- Copies a thread's checkpoints, values and writes, as one moment saw them.
WITH a AS (
    INSERT INTO {schema}.checkpoints
        (thread_id, ns, checkpoint_id, parent_id, epoch, format, ts, metadata, versions, seen)
    SELECT %(target)s, ns, checkpoint_id, parent_id, 0, format, ts, metadata, versions, seen
    FROM {schema}.checkpoints WHERE thread_id = %(source)s
    ON CONFLICT DO NOTHING
),
b AS (
    INSERT INTO {schema}.channel_blobs (thread_id, ns, channel, version, base, snapshot, kept, format, payload)
    SELECT %(target)s, ns, channel, version, base, snapshot, kept, format, payload
    FROM {schema}.channel_blobs WHERE thread_id = %(source)s
    ON CONFLICT DO NOTHING
)
INSERT INTO {schema}.task_writes
    (thread_id, ns, checkpoint_id, task_id, idx, format, task_path, channel, payload)
SELECT %(target)s, ns, checkpoint_id, task_id, idx, format, task_path, channel, payload
FROM {schema}.task_writes WHERE thread_id = %(source)s
ON CONFLICT DO NOTHING;
