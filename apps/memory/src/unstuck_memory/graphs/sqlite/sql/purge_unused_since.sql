DELETE FROM unused
WHERE vector IN (SELECT vector FROM unused WHERE since < :before LIMIT :limit)
RETURNING vector
