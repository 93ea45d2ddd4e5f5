SELECT entity, type, bits FROM embedding WHERE model = :model AND project = :project AND change > :after
