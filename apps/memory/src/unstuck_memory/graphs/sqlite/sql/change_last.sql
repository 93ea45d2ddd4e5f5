SELECT max(change) FROM embedding WHERE model = :model AND project = :project
