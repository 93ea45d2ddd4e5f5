-- size: the bytes of a payload. Only one that is kept compressed, and so looks smaller than it is, is read for it.
CASE WHEN pg_column_compression(jobs.payload) IS NULL THEN pg_column_size(jobs.payload)
    ELSE octet_length(jobs.payload::text) END
