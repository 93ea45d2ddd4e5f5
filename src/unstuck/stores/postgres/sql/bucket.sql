-- bucket: as take answers, for nothing taken: how many tokens are out, when the first of them returns, and until when the bucket is closed.
SELECT
    0, 0, count(*),
    coalesce(extract(epoch FROM min(free_at) - now()), 0)::double precision,
    coalesce((
        SELECT extract(epoch FROM closed_until - now()) FROM {schema}.buckets
        WHERE name = %(bucket)s AND closed_until > now()
    ), 0)::double precision
FROM {schema}.tokens WHERE bucket = %(bucket)s AND free_at > now()
