SELECT relation.uid, source.uid, target.uid, relation.type, relation.strength, relation.confidence, relation.metadata,
    relation.version, relation.created_at, relation.updated_at, relation.valid_from, relation.valid_to, relation.changed_by
FROM (
    SELECT * FROM relation WHERE project = :project AND valid_to IS NOT NULL
    UNION ALL
    SELECT * FROM relation WHERE project = :project AND valid_to IS NULL
) AS relation
JOIN entity AS source ON source.id = relation.source JOIN entity AS target ON target.id = relation.target
