-- count: the rows in numbers, by the words of this table.
SELECT
    {status}::text,
    count(*),
    count(*) FILTER (WHERE {run_at or null} > now()),
    count(*) FILTER (WHERE {lease} < now() AND {ended} < now()),
    count(*) FILTER (WHERE {code} = 'cancelled'),
    extract(epoch FROM now() - min({due}) FILTER (
        WHERE ({run_at or null} IS NULL OR {run_at or null} <= now()) AND isfinite({due})
    ))::double precision
FROM {table} AS job
GROUP BY 1
