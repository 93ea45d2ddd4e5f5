UPDATE relation
SET valid_to = :valid_to
WHERE valid_to IS NULL AND (source = :id OR target = :id)
