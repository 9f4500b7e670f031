-- The newest row of every key that is not deleted.
CREATE VIEW {schema}.etcd_live AS
    SELECT newest.* FROM (
        SELECT DISTINCT ON (e.key) e.key, e.value, e.revision, e.encoding, e.tombstone, e.ts
        FROM {schema}.etcd e ORDER BY e.key, e.revision DESC
    ) newest WHERE NOT newest.tombstone;

CREATE FUNCTION {schema}.etcd_list(p_prefix text)
RETURNS TABLE (key text, value text, revision bigint, encoding text, ts timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT l.key, l.value, l.revision, l.encoding, l.ts FROM {schema}.etcd_live l
    WHERE l.key >= p_prefix AND l.key <= p_prefix || repeat(chr(1114111), 512) AND starts_with(l.key, p_prefix)
    ORDER BY l.key
$$;

-- The queue in four columns: one revision that says it all.
CREATE VIEW {schema}.etcd_wal_seed AS
    SELECT w.ts, w.key, w.value,
           CASE w.status WHEN 'pending' THEN w.base_revision WHEN 'failed' THEN -1 ELSE w.result_revision END
               AS revision
    FROM {schema}.etcd_wal w;

CREATE VIEW {schema}.etcd_conflicts AS
    SELECT w.id, w.ts, w.key, w.operation, w.value, w.encoding, w.expected_revision,
           w.result_revision AS winning_revision, w.held, w.origin, w.processed_at
    FROM {schema}.etcd_wal w WHERE w.status = 'conflict';
