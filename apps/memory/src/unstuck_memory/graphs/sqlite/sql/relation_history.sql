SELECT {relation}
FROM entity AS source CROSS JOIN entity AS target
CROSS JOIN relation ON relation.source = source.id AND relation.target = target.id
WHERE source.project = :project AND source.name = :from AND target.project = :project AND target.name = :to
    AND relation.type = :type
ORDER BY relation.valid_from
