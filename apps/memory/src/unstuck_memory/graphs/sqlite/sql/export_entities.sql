SELECT {entity} FROM entity WHERE project = :project ORDER BY name, valid_from
