-- leftovers: how many rows wait with a lock or a lease of a worker that did not tidy up, and how many have a status that is
-- none of the four words.
SELECT
    count(*) FILTER (WHERE {status} = {queued} AND ({leftover})),
    count(*) FILTER (WHERE {status}::text <> ALL (ARRAY[{queued}, {processing}, {done}, {failed}]))
FROM {table} AS job
