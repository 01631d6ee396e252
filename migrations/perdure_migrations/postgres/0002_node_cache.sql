-- Results of nodes, to be used again for an equal input. Nothing refers to them, and any of them may go.

CREATE TABLE {schema}.node_cache (
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    expires_at timestamptz,
    value bytea NOT NULL,
    PRIMARY KEY (namespace, key)
);

COMMENT ON COLUMN {schema}.node_cache.namespace IS 'labels, each followed by a slash, with ~0 for ~ and ~1 for / in them: what is below a namespace is a range';
COMMENT ON COLUMN {schema}.node_cache.expires_at IS 'null: never';

CREATE INDEX node_cache_expiring ON {schema}.node_cache (expires_at) WHERE expires_at IS NOT NULL;

-- lz4 takes a quarter of pglz's time, where the server was built with it.
DO $migration$
BEGIN
    IF EXISTS (
        SELECT FROM pg_catalog.pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)
    ) THEN
        ALTER TABLE {schema}.node_cache ALTER COLUMN value SET COMPRESSION lz4;
    END IF;
END
$migration$;
