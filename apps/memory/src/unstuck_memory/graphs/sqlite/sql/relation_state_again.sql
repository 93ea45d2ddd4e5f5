UPDATE relation SET updated_at = max(updated_at, :now) WHERE id = :id
