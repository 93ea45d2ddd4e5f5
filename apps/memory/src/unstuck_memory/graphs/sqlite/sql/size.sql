SELECT
    (SELECT count(*) FROM entity INDEXED BY entity_name WHERE project = :project AND valid_to IS NULL),
    (SELECT count(*) FROM relation WHERE project = :project AND valid_to IS NULL),
    (SELECT count(*) FROM entity WHERE project = :project AND valid_to IS NOT NULL)
    + (SELECT count(*) FROM relation WHERE project = :project AND valid_to IS NOT NULL)
