-- take: hand out tokens of a bucket that is not closed, and drop those that have returned.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
closed AS (
    SELECT extract(epoch FROM closed_until - clock.now)::double precision AS seconds FROM {schema}.buckets, clock
    WHERE name = %(bucket)s AND closed_until > clock.now
),
returned AS (
    DELETE FROM {schema}.tokens USING clock WHERE bucket = %(bucket)s AND free_at <= clock.now
),
used AS (
    SELECT count(*) AS out, min(free_at) AS first FROM {schema}.tokens, clock
    WHERE bucket = %(bucket)s AND free_at > clock.now
),
room AS (
    SELECT CASE WHEN EXISTS (SELECT 1 FROM closed) THEN 0
        ELSE greatest(0, least(%(wanted)s, %(capacity)s - used.out)) END AS granted
    FROM used
),
granted AS (
    INSERT INTO {schema}.tokens (bucket, free_at, stamp)
    SELECT %(bucket)s, clock.now + make_interval(secs => %(interval)s), pg_current_xact_id()::text::bigint
    FROM clock, room, generate_series(1, room.granted)
    RETURNING stamp
)
SELECT
    room.granted,
    coalesce(
        (SELECT seconds FROM closed),
        CASE WHEN room.granted = %(wanted)s THEN 0
            ELSE coalesce(extract(epoch FROM used.first - clock.now)::double precision, %(interval)s) END
    ),
    coalesce((SELECT max(stamp) FROM granted), 0)
FROM room, used, clock
