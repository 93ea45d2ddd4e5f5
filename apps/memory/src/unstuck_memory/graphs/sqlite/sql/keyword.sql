SELECT entity.uid, words.rank
FROM words CROSS JOIN entity ON entity.id = words.rowid
WHERE words MATCH :query AND entity.project = :project
    AND (:types IS NULL OR entity.type IN (SELECT value FROM json_each(:types)))
ORDER BY words.rank
LIMIT :limit
