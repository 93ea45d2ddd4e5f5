UPDATE entity
SET version = version + 1, observations = :observations, updated_at = max(:now, valid_from + 1),
    valid_from = max(:now, valid_from + 1), changed_by = :changed_by
WHERE id = :id
RETURNING {entity}
