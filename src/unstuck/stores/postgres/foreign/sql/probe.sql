-- probe: what kind of table this is, its columns as {name: {type, empty, usual, made, kind}}, and for each foreign key of
-- its job column whether that leads to the table of the jobs. Nothing if there is no such table, or none that we may see.
SELECT
    (SELECT relkind::text FROM pg_class WHERE oid = to_regclass(%(table)s)),
    json_object_agg(
        attname,
        json_build_object(
            'type', format_type(atttypid, atttypmod),
            'empty', NOT attnotnull,
            'usual', atthasdef OR attidentity <> '',
            'made', attgenerated <> '' OR attidentity = 'a',
            'kind', (SELECT typcategory::text FROM pg_type WHERE oid = atttypid)
        )
    )::text,
    (
        SELECT coalesce(json_agg(confrelid = to_regclass(%(of)s)), '[]')::text FROM pg_constraint
        WHERE contype = 'f' AND conparentid = 0 AND conrelid = to_regclass(%(table)s) AND conkey = ARRAY[(
            SELECT attnum FROM pg_attribute WHERE attrelid = to_regclass(%(table)s) AND attname = %(column)s
        )]
    )
FROM pg_attribute WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
