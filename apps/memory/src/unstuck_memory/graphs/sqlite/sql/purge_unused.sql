INSERT INTO unused (vector, since)
SELECT DISTINCT vector, :now FROM chunk WHERE entity IN (SELECT value FROM json_each(:entities))
ON CONFLICT (vector) DO UPDATE SET since = excluded.since
