-- forget: delete records that were last kept long ago, the oldest first.
DELETE FROM record WHERE rowid IN (
    SELECT rowid FROM record WHERE kind = :kind AND updated_at <= :now - :age ORDER BY updated_at LIMIT :limit
)
