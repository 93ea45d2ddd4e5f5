// bucket: as take answers, for nothing taken: tokens that are out, when the first of them returns, and for how long it is closed.
WITH datetime.realtime().epochMillis AS now
CALL (now) {
  MATCH (g:{label}Grant {bucket: $bucket}) WHERE g.free_at > now AND g.count > 0
  RETURN sum(g.count) AS out, min(g.free_at) AS first
}
CALL (now) {
  MATCH (b:{label}Bucket {name: $bucket}) WHERE b.closed_until > now
  RETURN max(b.closed_until) AS closed
}
RETURN [0, 0, out, coalesce(first - now, 0), coalesce(closed - now, 0)] AS answer
