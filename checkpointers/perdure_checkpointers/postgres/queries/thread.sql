-- Statements that change threads as a whole. Each runs in a transaction that has locked its threads.
--
-- Each block has a name and a sentence. `{schema}` stands for the schema's name, other names in braces for
-- other blocks or words; `%(name)s` is bound.

-- name: lock_threads
-- Lock threads that are to be changed as a whole.
SELECT t.thread_id FROM {schema}.threads t WHERE t.thread_id = ANY (%(threads)s::text[])
ORDER BY t.thread_id FOR UPDATE;

-- name: delete_threads
-- Delete everything of the locked threads.
WITH a AS (DELETE FROM {schema}.checkpoints WHERE thread_id = ANY (%(threads)s::text[])),
    b AS (DELETE FROM {schema}.channel_blobs WHERE thread_id = ANY (%(threads)s::text[])),
    c AS (DELETE FROM {schema}.task_writes WHERE thread_id = ANY (%(threads)s::text[])),
    d AS (DELETE FROM {schema}.runs WHERE thread_id = ANY (%(threads)s::text[]))
DELETE FROM {schema}.threads WHERE thread_id = ANY (%(threads)s::text[]);

-- name: prune_threads
-- Delete all but the newest checkpoint of every namespace of the locked threads, with their writes.
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
-- Delete the values of the locked threads that no checkpoint refers to and no delta stands on.
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
-- List the threads on which these runs left something.
SELECT thread_id FROM {schema}.checkpoints WHERE metadata ->> 'run_id' = ANY (%(runs)s::text[])
UNION SELECT thread_id FROM {schema}.runs WHERE run_id = ANY (%(runs)s::text[]);

-- name: delete_runs
-- Delete the checkpoints of these runs on the locked threads, with their writes.
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
-- Create and lock the thread that another one is copied into, unless that one is empty.
INSERT INTO {schema}.threads AS t (thread_id, commits, last_id, metadata)
SELECT %(target)s, 1, s.last_id, s.metadata FROM {schema}.threads s
WHERE s.thread_id = %(source)s AND EXISTS (SELECT FROM {schema}.checkpoints c WHERE c.thread_id = s.thread_id)
ON CONFLICT (thread_id) DO UPDATE SET commits = t.commits + 1, last_id = GREATEST(t.last_id, excluded.last_id)
RETURNING t.thread_id;

-- name: copy_thread
-- Copy a thread's checkpoints, values and writes, as they were at one moment.
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
