-- keep: make a record, or change or delete it if it has this version. A new one that is there already is locked, so that
-- it is still there when it is read next.
WITH now AS (
    SELECT date_trunc('milliseconds', clock_timestamp()) AS now
),
made AS (
    INSERT INTO {schema}.records (kind, name, version, value, updated_at)
    SELECT %(kind)s, %(record)s, %(first)s, %(value)s::text, now FROM now
    WHERE %(version)s = 0 AND %(value)s::text IS NOT NULL
    ON CONFLICT (kind, name) DO UPDATE SET version = records.version WHERE false
),
changed AS (
    UPDATE {schema}.records SET version = version + 1, value = %(value)s::text, updated_at = now FROM now
    WHERE kind = %(kind)s AND name = %(record)s AND version = %(version)s AND %(value)s::text IS NOT NULL
)
DELETE FROM {schema}.records
WHERE kind = %(kind)s AND name = %(record)s AND version = %(version)s AND %(value)s::text IS NULL
