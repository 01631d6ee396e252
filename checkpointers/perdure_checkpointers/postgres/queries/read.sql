-- Statements that read checkpoints. They take no lock.
--
-- Each block has a name and a sentence. `{schema}` stands for the schema's name, other names in braces for
-- other blocks or words; `%(name)s` is bound.

-- name: get
-- Read a checkpoint of a thread with its values and pending writes.
SELECT {head}
FROM (
    SELECT * FROM {schema}.checkpoints c WHERE c.thread_id = %(thread)s AND c.ns = %(ns)s {addressed}
    ORDER BY c.checkpoint_id DESC LIMIT 1
) c
{values}
{writes};

-- name: head
-- Return a checkpoint `c`, its pending writes, its values, and if all of it is in a format that this release reads.
c.checkpoint_id, c.parent_id, c.ts, c.versions, c.seen, c.metadata,
c.format = %(checkpoint_format)s AND COALESCE(v.known, true) AND COALESCE(w.known, true) AS known,
w.task_ids, w.task_paths, w.places, w.write_channels, w.write_payloads,
v.channels, v.channel_versions, v.payloads, v.bases, v.kepts, v.snapshots

-- name: values
-- Join the values of the checkpoint `c`, and the rows that deltas stand on.
-- Each key is looked up by itself, so that a long thread costs no more; a delta's rows come by one range scan.
LEFT JOIN LATERAL (
    SELECT array_agg(n.key) AS channels, array_agg(b.version) AS channel_versions, array_agg(b.payload) AS payloads,
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
-- Join the pending writes of the checkpoint `c`.
LEFT JOIN LATERAL (
    SELECT array_agg(o.task_id) AS task_ids, array_agg(o.task_path) AS task_paths, array_agg(o.idx) AS places,
        array_agg(o.channel) AS write_channels, array_agg(o.payload) AS write_payloads,
        bool_and(o.format = %(format)s) AS known
    FROM {schema}.task_writes o
    WHERE o.thread_id = c.thread_id AND o.ns = c.ns AND o.checkpoint_id = c.checkpoint_id
) w ON true

-- name: addressed
-- Limit to the checkpoint with this id.
AND c.checkpoint_id = %(id)s

-- name: page
-- Read some checkpoints with their pending writes, newest first; `page_blobs` reads their values.
SELECT c.checkpoint_id, c.parent_id, c.ts, c.versions, c.seen, c.metadata,
    c.format = %(checkpoint_format)s AND COALESCE(w.known, true) AS known,
    w.task_ids, w.task_paths, w.places, w.write_channels, w.write_payloads,
    c.thread_id, c.ns
FROM (
    SELECT * FROM {schema}.checkpoints c WHERE true {conditions}
    ORDER BY c.checkpoint_id DESC, c.thread_id, c.ns LIMIT %(limit)s
) c
{writes}
ORDER BY c.checkpoint_id DESC, c.thread_id, c.ns;

-- name: of_thread
-- Limit a page to this thread.
AND c.thread_id = %(thread)s

-- name: of_namespace
-- Limit a page to this namespace.
AND c.ns = %(ns)s

-- name: older_than
-- Limit a page to smaller ids than this one.
AND c.checkpoint_id < %(before)s

-- name: matching
-- Limit a page to metadata that has all of these keys, with equal values.
AND c.metadata @> %(filter)s::jsonb
AND NOT EXISTS (SELECT FROM jsonb_each(%(filter)s::jsonb) f WHERE c.metadata -> f.key <> f.value)

-- name: after
-- Limit a page to what follows the last row of the page before, in the order of `page`.
AND c.checkpoint_id <= %(last_id)s
AND (c.checkpoint_id < %(last_id)s OR (c.thread_id, c.ns) > (%(last_thread)s, %(last_ns)s))

-- name: page_blobs
-- Read the values of a page and what they stand on; a chain that several of them share is read once.
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
SELECT w.thread_id, w.ns, w.channel, b.version, b.payload, b.base, b.kept, b.snapshot,
    b.format = %(format)s AS known
FROM wanted w
CROSS JOIN LATERAL (
    SELECT * FROM {schema}.channel_blobs o
    WHERE o.thread_id = w.thread_id AND o.ns = w.ns AND o.channel = w.channel
        AND o.version >= w.oldest AND o.version <= w.newest
    OFFSET 0
) b;
