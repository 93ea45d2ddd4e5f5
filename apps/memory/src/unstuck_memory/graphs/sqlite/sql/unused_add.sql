INSERT INTO unused (vector, since)
SELECT DISTINCT vector, :now FROM chunk WHERE entity = :entity AND model = :model
ON CONFLICT (vector) DO UPDATE SET since = excluded.since
