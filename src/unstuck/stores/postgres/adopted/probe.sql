-- probe: the columns of a table as {name: [type, whether it must be given]}, and which tables its event column may
-- refer to. Nothing if there is no such table, or none that we may see.
SELECT
    json_object_agg(
        attname,
        json_build_array(
            format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = '' AND attgenerated = ''
        )
    )::text,
    (
        SELECT coalesce(json_agg(confrelid = to_regclass(%(of)s)), '[]')::text FROM pg_constraint
        WHERE contype = 'f' AND conrelid = to_regclass(%(table)s) AND conkey = ARRAY[(
            SELECT attnum FROM pg_attribute WHERE attrelid = to_regclass(%(table)s) AND attname = %(column)s
        )]
    )
FROM pg_attribute WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
