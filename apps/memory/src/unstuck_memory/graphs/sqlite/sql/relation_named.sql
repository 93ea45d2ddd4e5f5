SELECT {relation}
FROM entity AS source CROSS JOIN entity AS target
CROSS JOIN relation ON relation.source = source.id AND relation.target = target.id
WHERE source.project = :project AND source.name = :from AND source.valid_to IS NULL
    AND target.project = :project AND target.name = :to AND target.valid_to IS NULL
    AND relation.type = :type AND relation.valid_to IS NULL
