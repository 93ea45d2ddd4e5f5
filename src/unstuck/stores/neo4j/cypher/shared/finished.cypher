// finished: the finished jobs `j` that match, the oldest first, locked in the order of ids.
{source}
WITH f ORDER BY f.processed_at LIMIT $limit
WITH f ORDER BY f.id
SET f.id = f.id
WITH collect(f) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS j
WITH j, now
WHERE j.status IN ['completed', 'failed']
