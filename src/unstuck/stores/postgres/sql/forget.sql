-- forget: delete records that were last kept long ago, the oldest first. One that is being changed is not old.
WITH old AS (
    SELECT name FROM {schema}.records
    WHERE kind = %(kind)s AND updated_at <= clock_timestamp() - make_interval(secs => %(age)s)
    ORDER BY updated_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {schema}.records USING old WHERE records.kind = %(kind)s AND records.name = old.name RETURNING 1
)
SELECT count(*) FROM gone
