-- The newest write that was mirrored and was no delete. A delete says little about which history it is from: a key that is
-- not there is not there in many.
ALTER TABLE {schema}.etcd_sync_state ADD COLUMN live_key text COLLATE "C", ADD COLUMN live_revision bigint;
