-- A number of the queue comes again when the database is restored from a backup, or fails over to a standby that lost
-- its last commits. This one does not: by it the marker in etcd tells the write it carried from another with its number.
-- Writes queued before this have none.
ALTER TABLE {schema}.etcd_wal ADD COLUMN nonce bigint;
ALTER TABLE {schema}.etcd_wal ALTER COLUMN nonce SET DEFAULT hashtextextended(gen_random_uuid()::text, 0);
COMMENT ON COLUMN {schema}.etcd_wal.nonce IS 'Tells this write from one that had its id before a restore.';
