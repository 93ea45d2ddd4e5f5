-- crowd: from here on nobody else leases from these queues until we have, so that what runs can be counted.
-- A statement of its own: only the next one sees what those before us have leased.
SELECT name FROM {schema}.queues WHERE name IN (SELECT json_array_elements_text(%(queues)s::json))
ORDER BY name
FOR UPDATE
