-- keep: make a record, or change it if it has this version.
INSERT INTO record (kind, name, version, value, updated_at)
SELECT :kind, :record, :first, :value, :now
WHERE :version = 0 OR EXISTS (SELECT 1 FROM record WHERE kind = :kind AND name = :record)
ON CONFLICT (kind, name) DO UPDATE
SET version = version + 1, value = excluded.value, updated_at = excluded.updated_at WHERE version = :version
