-- meet: give queues a row of their own, which lease and pause lock.
INSERT INTO {schema}.queues (name) SELECT json_array_elements_text(%(queues)s::json) ORDER BY 1
ON CONFLICT (name) DO NOTHING
