-- NOTIFY is only a wake-up: once per statement, and small whatever was written.
CREATE FUNCTION {schema}.notify_etcd_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    highest bigint;
BEGIN
    SELECT max(id) INTO highest FROM fresh;
    IF highest IS NOT NULL THEN
        PERFORM pg_notify('etcd_changes', highest::text);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER etcd_wal_notify AFTER INSERT ON {schema}.etcd_wal
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION {schema}.notify_etcd_change();

CREATE FUNCTION {schema}.etcd_get(p_key text)
RETURNS TABLE (key text, value text, revision bigint, tombstone boolean, ts timestamptz, encoding text)
LANGUAGE sql STABLE AS $$
    SELECT e.key, e.value, e.revision, e.tombstone, e.ts, e.encoding FROM {schema}.etcd e
    WHERE e.key = p_key ORDER BY e.revision DESC LIMIT 1
$$;

CREATE FUNCTION {schema}.etcd_get_all(p_key text, p_min_revision bigint DEFAULT 0)
RETURNS TABLE (key text, value text, revision bigint, tombstone boolean, ts timestamptz, encoding text)
LANGUAGE sql STABLE AS $$
    SELECT e.key, e.value, e.revision, e.tombstone, e.ts, e.encoding FROM {schema}.etcd e
    WHERE e.key = p_key AND e.revision > p_min_revision ORDER BY e.revision
$$;

CREATE FUNCTION {schema}.etcd_bytes(p_value text, p_encoding text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_encoding WHEN 'base64' THEN decode(p_value, 'base64') ELSE convert_to(p_value, 'UTF8') END
$$;

-- Queue one write. Two sessions may hit the same microsecond on one key: the later one takes the next.
CREATE FUNCTION {schema}.etcd_enqueue(
    p_key text, p_value text, p_encoding text, p_operation text, p_expected bigint
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    newest record;
    stamp  timestamptz;
BEGIN
    SELECT e.revision, e.tombstone INTO newest FROM {schema}.etcd e
    WHERE e.key = p_key ORDER BY e.revision DESC LIMIT 1;
    LOOP
        INSERT INTO {schema}.etcd_wal (key, value, encoding, operation, base_revision, expected_revision, exact)
        VALUES (p_key, p_value, p_encoding, p_operation,
                CASE WHEN p_expected IS NULL THEN newest.revision ELSE p_expected END,
                coalesce(p_expected, CASE WHEN newest.tombstone THEN 0 ELSE newest.revision END, 0),
                p_expected IS NOT NULL)
        ON CONFLICT (key, ts) DO NOTHING
        RETURNING etcd_wal.ts INTO stamp;
        EXIT WHEN stamp IS NOT NULL;
    END LOOP;
    RETURN stamp;
END $$;

CREATE FUNCTION {schema}.etcd_set(p_key text, p_value text) RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    IF p_value IS NULL THEN
        RAISE EXCEPTION 'etcd_set takes no NULL' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Use etcd_delete(key) to delete; '''' is a value.';
    END IF;
    RETURN {schema}.etcd_enqueue(p_key, p_value, 'utf8', 'put', NULL);
END $$;

-- Compare-and-set: applied only if etcd holds the key at exactly this revision (0 = not at all).
CREATE FUNCTION {schema}.etcd_set(p_key text, p_value text, p_expected_revision bigint)
RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    IF p_value IS NULL OR p_expected_revision IS NULL OR p_expected_revision < 0 THEN
        RAISE EXCEPTION 'etcd_set takes no NULL, and a revision from 0 on' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Use etcd_delete(key) to delete; expected_revision 0 means that the key must not exist.';
    END IF;
    RETURN {schema}.etcd_enqueue(p_key, p_value, 'utf8', 'put', p_expected_revision);
END $$;

CREATE FUNCTION {schema}.etcd_set_bytes(p_key text, p_value bytea) RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    IF p_value IS NULL THEN
        RAISE EXCEPTION 'etcd_set_bytes takes no NULL' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Use etcd_delete(key) to delete.';
    END IF;
    RETURN {schema}.etcd_enqueue(p_key, translate(encode(p_value, 'base64'), E'\n', ''), 'base64', 'put', NULL);
END $$;

CREATE FUNCTION {schema}.etcd_delete(p_key text) RETURNS timestamptz LANGUAGE sql AS $$
    SELECT {schema}.etcd_enqueue(p_key, NULL, 'utf8', 'delete', NULL)
$$;

-- Wait until a write of ours is decided and, when it was applied, can be read here. 'pending' = time is up.
CREATE FUNCTION {schema}.etcd_wait(p_key text, p_ts timestamptz, p_timeout interval DEFAULT '5 seconds')
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    give_up timestamptz := clock_timestamp() + p_timeout;
    row     record;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'etcd_wait sees nothing new in a % transaction', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Call it in READ COMMITTED.';
    END IF;
    LOOP
        SELECT w.status, w.result_revision, w.transaction_id INTO row
        FROM {schema}.etcd_wal w WHERE w.key = p_key AND w.ts = p_ts;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no write to % at %', p_key, p_ts USING ERRCODE = 'no_data_found';
        END IF;
        IF row.transaction_id = pg_current_xact_id_if_assigned() THEN
            RAISE EXCEPTION 'etcd_wait inside the transaction that wrote would wait for ever'
                USING ERRCODE = 'invalid_transaction_state', HINT = 'Commit first, then wait.';
        END IF;
        EXIT WHEN row.status IN ('conflict', 'failed', 'noop')
            OR (row.status = 'applied' AND EXISTS (
                SELECT 1 FROM {schema}.etcd e WHERE e.key = p_key AND e.revision >= row.result_revision));
        IF clock_timestamp() >= give_up THEN
            RETURN 'pending';
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN row.status;
END $$;
