-- Statements of the node cache.
--
-- Each block has a name and a sentence. `{schema}` stands for the schema's name; `%(name)s` is bound.
--
-- A statement that locks several rows, and waits, locks them in the order of their key.

-- name: cache_get
-- Read the values under these keys that have not expired, each with the number of its key.
SELECT k.n, c.value
FROM unnest(%(namespaces)s::text[], %(keys)s::text[]) WITH ORDINALITY AS k (namespace, key, n)
JOIN {schema}.node_cache c USING (namespace, key)
WHERE c.expires_at IS NULL OR c.expires_at > clock_timestamp();

-- name: cache_set
-- Store values for so many microseconds each, or for ever if negative; then remove some that have expired.
WITH stored AS (
    INSERT INTO {schema}.node_cache (namespace, key, expires_at, value)
    SELECT e.namespace, e.key,
        CASE WHEN e.ttl >= 0 THEN clock_timestamp() + e.ttl * interval '1 microsecond' END, e.value
    FROM unnest(%(namespaces)s::text[], %(keys)s::text[], %(ttls)s::int8[], %(values)s::bytea[])
        AS e (namespace, key, ttl, value)
    ORDER BY e.namespace COLLATE "C", e.key COLLATE "C"
    ON CONFLICT (namespace, key) DO UPDATE SET expires_at = excluded.expires_at, value = excluded.value
    RETURNING 1
),
-- It reads `stored`, so it runs second: once it has locked expired rows, this statement waits for no other.
expired AS MATERIALIZED (
    SELECT c.namespace, c.key FROM {schema}.node_cache c
    WHERE c.expires_at <= now() AND (SELECT count(*) FROM stored) > 0
    ORDER BY c.expires_at LIMIT 100 + cardinality(%(keys)s::text[]) FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.node_cache c USING expired e WHERE c.namespace = e.namespace AND c.key = e.key;

-- name: cache_clear
-- Remove some of the entries in these ranges of namespaces, and count them.
WITH found AS MATERIALIZED (
    SELECT c.namespace, c.key
    FROM unnest(%(firsts)s::text[], %(untils)s::text[]) AS r (first, until)
    JOIN {schema}.node_cache c ON c.namespace >= r.first AND c.namespace < r.until
    LIMIT %(most)s
),
locked AS MATERIALIZED (
    SELECT c.namespace, c.key FROM {schema}.node_cache c JOIN found f USING (namespace, key)
    ORDER BY c.namespace, c.key FOR UPDATE OF c
),
gone AS (
    DELETE FROM {schema}.node_cache c USING locked l WHERE c.namespace = l.namespace AND c.key = l.key
)
SELECT count(*) AS found FROM found;
