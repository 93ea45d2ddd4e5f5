SELECT {entity}
FROM missing CROSS JOIN entity ON entity.id = missing.entity
WHERE missing.model = :model AND (missing.since, missing.uid) > (:since, :uid)
ORDER BY missing.since, missing.uid
LIMIT :limit
