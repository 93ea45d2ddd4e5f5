SELECT name FROM entity WHERE project = :project AND folded = :folded AND valid_to IS NULL ORDER BY id LIMIT 1
