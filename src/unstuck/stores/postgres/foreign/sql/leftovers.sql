-- leftovers: how many rows wait with a lock or a lease of a worker that did not tidy up, and how many have which status that
-- is none of the four words, the most frequent first.
SELECT (SELECT count(*) FROM {table} AS job WHERE {status} = {queued} AND ({leftover})), (
    SELECT coalesce(json_agg(json_build_array(word, rows) ORDER BY rows DESC, word), '[]')::text FROM (
        SELECT {status}::text AS word, count(*) AS rows FROM {table} AS job
        WHERE {status}::text <> ALL (ARRAY[{queued}, {processing}, {done}, {failed}])
        GROUP BY 1
    ) AS strange
)
