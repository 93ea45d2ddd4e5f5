-- take: hand out tokens of a bucket that is not closed, and drop those that have returned. Those that were taken before
-- the clock was put back return one interval from now.
WITH clock AS MATERIALIZED (
    SELECT now, now + make_interval(secs => %(interval)s) AS free_at, now + make_interval(secs => %(latest)s) AS latest
    FROM clock_timestamp() AS now
),
closed AS (
    SELECT extract(epoch FROM closed_until - clock.now)::double precision AS seconds FROM {schema}.buckets, clock
    WHERE name = %(bucket)s AND closed_until > clock.now
),
returned AS (
    DELETE FROM {schema}.tokens USING clock WHERE bucket = %(bucket)s AND tokens.free_at <= clock.now
),
ahead AS (
    UPDATE {schema}.tokens SET free_at = clock.free_at FROM clock
    WHERE bucket = %(bucket)s AND tokens.free_at > clock.latest
),
used AS (
    SELECT
        count(*) AS out,
        min(CASE WHEN tokens.free_at > clock.latest THEN clock.free_at ELSE tokens.free_at END) AS first
    FROM {schema}.tokens, clock
    WHERE bucket = %(bucket)s AND tokens.free_at > clock.now
),
room AS (
    SELECT CASE WHEN EXISTS (SELECT 1 FROM closed) THEN 0
        ELSE greatest(0, least(%(wanted)s, %(capacity)s - used.out)) END AS granted
    FROM used
),
granted AS (
    INSERT INTO {schema}.tokens (bucket, free_at, stamp)
    SELECT %(bucket)s, clock.free_at, pg_current_xact_id()::text::bigint
    FROM clock, room, generate_series(1, room.granted)
    RETURNING stamp
)
SELECT
    room.granted,
    coalesce((SELECT max(stamp) FROM granted), 0),
    used.out + room.granted,
    coalesce(extract(epoch FROM
        least(used.first, CASE WHEN room.granted > 0 THEN clock.free_at END) - clock.now
    )::double precision, 0),
    coalesce((SELECT seconds FROM closed), 0)
FROM room, used, clock
