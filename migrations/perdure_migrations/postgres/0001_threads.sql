-- What a durable thread is made of.
--
-- Every key leads with thread_id, and nothing refers across threads: no sequence, no foreign key. So
-- the tables can be hash-partitioned by thread_id or distributed as they are. Keys are compared byte
-- by byte (COLLATE "C"): the order of ids must not depend on the server's locale.

CREATE TABLE {schema}.migrations (
    id integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One small row per thread, changed by every commit. No index but the key, and room on each page, so
-- that the change stays on its page and touches no index (HOT).
CREATE TABLE {schema}.threads (
    thread_id text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    commits bigint NOT NULL DEFAULT 0,
    run_id text COLLATE "C",
    holder text,
    claimed_at timestamptz,
    lease_expires timestamptz,
    last_id text COLLATE "C",
    status text NOT NULL DEFAULT 'idle',
    metadata jsonb NOT NULL DEFAULT '{{}}'
) WITH (fillfactor = 60);

COMMENT ON COLUMN {schema}.threads.epoch IS 'the fence: grows with every claim; a writer with an older one is refused';
COMMENT ON COLUMN {schema}.threads.commits IS 'grows with every commit; tells a reader that waited that its snapshot is old';
COMMENT ON COLUMN {schema}.threads.run_id IS 'the run that holds the thread; null when it is free';
COMMENT ON COLUMN {schema}.threads.last_id IS 'the greatest checkpoint id ever drawn on this thread';

CREATE TABLE {schema}.runs (
    thread_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    end_epoch bigint,
    attempt integer NOT NULL DEFAULT 1,
    ns text COLLATE "C" NOT NULL,
    graph text COLLATE "C" NOT NULL,
    signature text COLLATE "C" NOT NULL,
    durability text NOT NULL,
    status text NOT NULL,
    format smallint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    error text,
    config json NOT NULL,
    input bytea NOT NULL,
    PRIMARY KEY (thread_id, run_id)
);

COMMENT ON COLUMN {schema}.runs.epoch IS 'of the first claim: checkpoints with this epoch or a later one are the run''s own';
COMMENT ON COLUMN {schema}.runs.end_epoch IS 'of the claim that ended it: an end that is sent again is told from another''s';

CREATE INDEX runs_running ON {schema}.runs (thread_id, run_id) WHERE status = 'running';

CREATE TABLE {schema}.checkpoints (
    thread_id text COLLATE "C" NOT NULL,
    ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    epoch bigint NOT NULL,
    format smallint NOT NULL,
    ts text NOT NULL,
    metadata jsonb NOT NULL,
    versions bytea NOT NULL,
    seen bytea NOT NULL,
    PRIMARY KEY (thread_id, ns, checkpoint_id)
);

COMMENT ON COLUMN {schema}.checkpoints.epoch IS 'of the claim that wrote it; 0 where no claim was needed';
COMMENT ON COLUMN {schema}.checkpoints.versions IS 'JSON: channel -> version; a channel without a blob at its version has no value';

CREATE TABLE {schema}.channel_blobs (
    thread_id text COLLATE "C" NOT NULL,
    ns text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    base text COLLATE "C",
    snapshot text COLLATE "C",
    kept integer NOT NULL DEFAULT 0,
    format smallint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (thread_id, ns, channel, version)
);

COMMENT ON COLUMN {schema}.channel_blobs.base IS 'null: the payload is the value; else it follows the first `kept` elements of the value at this version';
COMMENT ON COLUMN {schema}.channel_blobs.snapshot IS 'the version where the chain of bases ends; the chain lies between it and this row';

CREATE TABLE {schema}.task_writes (
    thread_id text COLLATE "C" NOT NULL,
    ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    idx integer NOT NULL,
    format smallint NOT NULL,
    task_path text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (thread_id, ns, checkpoint_id, task_id, idx)
);

-- lz4 takes a quarter of pglz's time, where the server was built with it.
DO $migration$
BEGIN
    IF EXISTS (
        SELECT FROM pg_catalog.pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)
    ) THEN
        ALTER TABLE {schema}.runs ALTER COLUMN input SET COMPRESSION lz4;
        ALTER TABLE {schema}.checkpoints ALTER COLUMN versions SET COMPRESSION lz4;
        ALTER TABLE {schema}.checkpoints ALTER COLUMN seen SET COMPRESSION lz4;
        ALTER TABLE {schema}.channel_blobs ALTER COLUMN payload SET COMPRESSION lz4;
        ALTER TABLE {schema}.task_writes ALTER COLUMN payload SET COMPRESSION lz4;
    END IF;
END
$migration$;
