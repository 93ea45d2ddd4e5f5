SELECT id, uid FROM entity WHERE id IN (SELECT value FROM json_each(:entities))
