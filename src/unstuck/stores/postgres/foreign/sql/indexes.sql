-- indexes: those of a table, each with its name, whether it is finished, and the columns it begins with.
SELECT class.relname, index.indisvalid, index.indexrelid::regclass::text, ARRAY(
    SELECT coalesce(column_.attname, '') FROM unnest(index.indkey) WITH ORDINALITY AS key (number, place)
    LEFT JOIN pg_attribute AS column_ ON column_.attrelid = index.indrelid AND column_.attnum = key.number
    ORDER BY key.place
)::text[]
FROM pg_index AS index JOIN pg_class AS class ON class.oid = index.indexrelid
WHERE index.indrelid = to_regclass(%(table)s)
