SELECT id, dimension, known_at, marked_to FROM model WHERE name = :name
