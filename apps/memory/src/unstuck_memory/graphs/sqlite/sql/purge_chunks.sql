DELETE FROM chunk WHERE entity IN (SELECT value FROM json_each(:entities))
