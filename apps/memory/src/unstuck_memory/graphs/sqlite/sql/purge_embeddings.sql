DELETE FROM embedding WHERE entity IN (SELECT value FROM json_each(:entities))
