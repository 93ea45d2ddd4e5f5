// heartbeat: renew leases that are still held, and record that the worker lives. What is null stays as it is. Answers
// which were renewed, and the leases of this owner that were not.
CALL () {
  UNWIND $beats AS row
  MATCH (c:{label} {id: row.address})
  SET c.id = c.id
  WITH collect({c: c, row: row}) AS locked
  WITH locked, datetime.realtime().epochMillis AS now
  UNWIND locked AS one
  WITH one.c AS j, one.row AS row, now
  WHERE j.status = 'processing' AND j.fence = row.fence
  SET j += {
    lock_until: now + row.lease, heartbeat_at: now,
    progress: coalesce(row.progress, j.progress), stage: coalesce(row.stage, j.stage)
  }
  RETURN collect(row.number) AS renewed, collect(j.id) AS addresses
}
WITH renewed, addresses, datetime.realtime().epochMillis AS now
MERGE (w:{label}Worker {id: $owner})
ON CREATE SET w.started_at = now
SET w.seen_at = now, w.facts = $facts
WITH renewed, addresses, now
CALL (now) {
  MATCH (silent:{label}Worker) WHERE silent.seen_at < now - $remember
  DELETE silent
  RETURN count(*) AS forgotten
}
CALL (addresses) {
  MATCH (held:{label})
  USING INDEX SEEK held:{label}(status)
  WHERE held.status = 'processing' AND held.lock_owner = $owner AND NOT held.id IN addresses
  RETURN collect([coalesce(held.queue, ''), held.id, coalesce(held.fence, 0)]) AS strangers
}
RETURN [renewed, strangers] AS answer
