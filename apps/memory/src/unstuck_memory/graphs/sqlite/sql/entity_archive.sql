-- Its relations end with it, at a time that is later than the beginning of each.
UPDATE entity
SET valid_to = max(
    :now, valid_from + 1,
    coalesce((SELECT max(valid_from) + 1 FROM relation WHERE source = entity.id AND valid_to IS NULL), 0),
    coalesce((SELECT max(valid_from) + 1 FROM relation WHERE target = entity.id AND valid_to IS NULL), 0)
)
WHERE id = :id
RETURNING valid_to
