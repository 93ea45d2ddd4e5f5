-- forget_spacing: delete what is known of keys for which no job stands any more, some at a time. What a call has locked is left.
WITH over AS (
    SELECT queue, key FROM {schema}.spacing WHERE until <= clock_timestamp()
    ORDER BY until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.spacing USING over WHERE spacing.queue = over.queue AND spacing.key = over.key
