SELECT id, known_at, marked_to FROM model WHERE name = :name AND dimension = :dimension
