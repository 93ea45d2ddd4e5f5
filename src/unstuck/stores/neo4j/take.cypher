// take: hand out tokens of a bucket that is not closed, and drop those that have returned. A grant is a node: so many
// tokens, all of which return at the same time.
MERGE (b:{label}Bucket {name: $bucket})
ON CREATE SET b.stamp = 0
SET b.name = b.name
WITH b, datetime.realtime().epochMillis AS now
CALL (b, now) {
  MATCH (gone:{label}Grant {bucket: $bucket}) WHERE gone.free_at <= now
  DELETE gone
  RETURN count(*) AS returned
}
CALL (b, now) {
  MATCH (g:{label}Grant {bucket: $bucket}) WHERE g.free_at > now
  RETURN sum(g.count) AS out, min(g.free_at) AS first
}
WITH b, now, first, CASE
  WHEN coalesce(b.closed_until, 0) > now OR $capacity - out < 1 THEN 0
  WHEN $capacity - out < $wanted THEN $capacity - out
  ELSE $wanted END AS granted
SET b.stamp = b.stamp + 1
FOREACH (_ IN CASE WHEN granted > 0 THEN [1] ELSE [] END |
  CREATE (:{label}Grant {bucket: $bucket, free_at: now + $interval, stamp: b.stamp, count: granted}))
RETURN [granted, CASE
  WHEN coalesce(b.closed_until, 0) > now THEN b.closed_until - now
  WHEN granted = $wanted THEN 0
  ELSE coalesce(first - now, $interval) END, b.stamp] AS answer
