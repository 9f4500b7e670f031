-- The mirror: every revision of every key under the prefix, keys in full.
CREATE TABLE {schema}.etcd (
    ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    key        text COLLATE "C" NOT NULL CHECK (key <> '' AND octet_length(key) <= 2048),
    value      text,
    revision   bigint NOT NULL CHECK (revision > 0),
    tombstone  boolean NOT NULL DEFAULT false,
    encoding   text NOT NULL DEFAULT 'utf8' CHECK (encoding IN ('utf8', 'base64')),
    PRIMARY KEY (key, revision),
    CHECK (tombstone = (value IS NULL))
);
COMMENT ON TABLE {schema}.etcd IS 'History of the mirrored keys; written by trueup only.';

-- Writes on their way to etcd, and what became of them.
CREATE TABLE {schema}.etcd_wal (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ts                timestamptz NOT NULL DEFAULT clock_timestamp(),
    key               text COLLATE "C" NOT NULL CHECK (key <> '' AND octet_length(key) <= 2048),
    value             text,
    encoding          text NOT NULL DEFAULT 'utf8' CHECK (encoding IN ('utf8', 'base64')),
    operation         text NOT NULL CHECK (operation IN ('put', 'delete')),
    base_revision     bigint,
    expected_revision bigint NOT NULL DEFAULT 0,
    exact             boolean NOT NULL DEFAULT false,
    status            text NOT NULL DEFAULT 'pending'
                      CHECK (status IN ('pending', 'applied', 'conflict', 'failed', 'noop')),
    held              boolean NOT NULL DEFAULT false,
    result_revision   bigint,
    chain_base        bigint,
    attempts          integer NOT NULL DEFAULT 0,
    last_error        text,
    processed_at      timestamptz,
    origin            text NOT NULL DEFAULT session_user,
    transaction_id    xid8 NOT NULL DEFAULT pg_current_xact_id(),
    UNIQUE (key, ts),
    CHECK ((operation = 'put') = (value IS NOT NULL))
);
COMMENT ON COLUMN {schema}.etcd_wal.base_revision IS 'Newest revision the writer could see; NULL = unknown key.';
COMMENT ON COLUMN {schema}.etcd_wal.expected_revision IS 'mod_revision etcd must have for the write to happen; 0 = no such key.';
COMMENT ON COLUMN {schema}.etcd_wal.chain_base IS 'Base of the unbroken chain of our own writes that ends here.';
CREATE INDEX etcd_wal_pending ON {schema}.etcd_wal (id) WHERE status = 'pending';
CREATE INDEX etcd_wal_heads ON {schema}.etcd_wal (key, result_revision)
    WHERE status = 'applied' AND chain_base IS NOT NULL;
CREATE INDEX etcd_wal_trouble ON {schema}.etcd_wal (status, id) WHERE status IN ('conflict', 'failed');

-- How far each prefix has come. Moves in the same transaction as the rows it covers.
CREATE TABLE {schema}.etcd_sync_state (
    prefix           text COLLATE "C" PRIMARY KEY CHECK (prefix <> ''),
    replica          uuid NOT NULL DEFAULT gen_random_uuid(),
    cluster_id       text,
    applied_revision bigint NOT NULL DEFAULT 0,
    witness_key      text COLLATE "C",
    witness_revision bigint,
    base_revision    bigint,
    base_next        bytea,
    base_merge       boolean NOT NULL DEFAULT false,
    slot_revision    bigint NOT NULL DEFAULT 0,
    epoch            bigint NOT NULL DEFAULT 0,
    synced_at        timestamptz,
    meters           jsonb NOT NULL DEFAULT '{}'
);

-- What a person may want to know later: quarantined keys, failures, conflicts, healed drift.
CREATE TABLE {schema}.etcd_events (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ts        timestamptz NOT NULL DEFAULT clock_timestamp(),
    prefix    text NOT NULL,
    kind      text NOT NULL,
    key       bytea,
    revision  bigint,
    value     bytea,
    detail    text NOT NULL
);

-- Stretches of history etcd had compacted away before they could be mirrored.
CREATE TABLE {schema}.etcd_gaps (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ts            timestamptz NOT NULL DEFAULT clock_timestamp(),
    prefix        text NOT NULL,
    from_revision bigint NOT NULL,
    to_revision   bigint NOT NULL,
    reason        text NOT NULL
);

-- History of a cluster that was replaced; `resync` moves it here instead of deleting it.
CREATE TABLE {schema}.etcd_archive (
    archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    cluster_id  text,
    ts          timestamptz NOT NULL,
    key         text COLLATE "C" NOT NULL,
    value       text,
    revision    bigint NOT NULL,
    tombstone   boolean NOT NULL,
    encoding    text NOT NULL
);
