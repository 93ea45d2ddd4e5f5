SELECT
    (SELECT count(*) FROM entity INDEXED BY entity_name WHERE project = :project AND valid_to IS NULL),
    (SELECT count(*) FROM embedding WHERE model = :model AND project = :project AND bits IS NOT NULL)
