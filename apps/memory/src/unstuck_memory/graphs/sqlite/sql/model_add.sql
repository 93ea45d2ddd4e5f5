INSERT INTO model (name, dimension, known_at) VALUES (:name, :dimension, coalesce((SELECT max(id) FROM entity), 0))
