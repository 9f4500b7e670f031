-- How far the drain has come. A row of its own: mirror and drain move at the same time, and must not wait for each
-- other's commit. It carries the epoch too, which fences off an instance that no longer leads.
CREATE TABLE {schema}.etcd_drain_state (
    prefix        text COLLATE "C" PRIMARY KEY,
    slot_revision bigint NOT NULL DEFAULT 0,
    epoch         bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.etcd_drain_state (prefix, slot_revision, epoch)
    SELECT prefix, slot_revision, epoch FROM {schema}.etcd_sync_state;
ALTER TABLE {schema}.etcd_sync_state DROP COLUMN slot_revision;
