// forget: delete records that were last kept long ago, the oldest first. The lock on the kind holds off changes.
MERGE (k:{label}RecordKind {name: $kind})
SET k.name = k.name
WITH datetime.realtime().epochMillis - $age AS before
CALL (before) {
  MATCH (r:{label}Record) WHERE r.kind = $kind AND r.updated_at <= before
  WITH r ORDER BY r.updated_at LIMIT $limit
  DELETE r
  RETURN count(*) AS gone
}
RETURN gone AS answer
