SELECT {entity}
FROM missing INDEXED BY missing_in_project CROSS JOIN entity ON entity.id = missing.entity
WHERE missing.model = :model AND missing.project = :project AND (missing.since, missing.uid) > (:since, :uid)
ORDER BY missing.since, missing.uid
LIMIT :limit
