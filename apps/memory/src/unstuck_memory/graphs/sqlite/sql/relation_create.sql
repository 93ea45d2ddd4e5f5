-- Later than everything that had this key before, and not before its ends began.
INSERT INTO relation (
    uid, project, source, target, type, strength, confidence, metadata, version, created_at, updated_at, valid_from, changed_by
)
SELECT :uid, :project, :source, :target, :type, :strength, :confidence, :metadata, 1,
    coalesce(:created_at, began), coalesce(:updated_at, began), began, :changed_by
FROM (
    SELECT max(:now, :ends_since, coalesce(max(valid_to), 0)) AS began
    FROM relation
    WHERE source = :source AND target = :target AND type = :type AND valid_to IS NOT NULL
)
