-- What a relation was before, from its values then; its ends and its project are those of the current row.
INSERT INTO relation (
    uid, project, source, target, type, strength, confidence, metadata, version, created_at, updated_at, valid_from, valid_to,
    changed_by
)
SELECT uid, project, source, target, type, :strength, :confidence, :metadata, :version, created_at, :updated_at, :valid_from,
    :valid_to, :changed_by
FROM relation
WHERE id = :id
