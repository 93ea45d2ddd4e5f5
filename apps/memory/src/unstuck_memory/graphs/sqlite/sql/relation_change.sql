UPDATE relation
SET version = version + 1, strength = :strength, confidence = :confidence, metadata = :metadata,
    updated_at = coalesce(:updated_at, max(:now, valid_from + 1)), valid_from = max(:now, valid_from + 1), changed_by = :changed_by
WHERE id = :id
RETURNING valid_from
