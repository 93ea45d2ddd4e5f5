// take: hand out tokens of a bucket that is not closed, and drop those that have returned. A grant is a node: so many
// tokens, all of which return at the same time. Those taken before the clock was put back return one interval from now.
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
  MATCH (ahead:{label}Grant {bucket: $bucket}) WHERE ahead.free_at > now + $latest
  SET ahead.free_at = now + $interval
  RETURN count(*) AS returning
}
CALL (b, now) {
  MATCH (g:{label}Grant {bucket: $bucket}) WHERE g.free_at > now AND g.count > 0
  RETURN sum(g.count) AS out, min(g.free_at) AS first
}
WITH b, now, out, first, CASE
  WHEN coalesce(b.closed_until, 0) > now OR $capacity - out < 1 THEN 0
  WHEN $capacity - out < $wanted THEN $capacity - out
  ELSE $wanted END AS granted
SET b.stamp = b.stamp + 1
FOREACH (_ IN CASE WHEN granted > 0 THEN [1] ELSE [] END |
  CREATE (:{label}Grant {bucket: $bucket, free_at: now + $interval, stamp: b.stamp, count: granted}))
RETURN [granted, b.stamp, out + granted, CASE
  WHEN granted > 0 AND coalesce(first, now + $interval) >= now + $interval THEN $interval
  ELSE coalesce(first - now, 0) END, CASE
  WHEN coalesce(b.closed_until, 0) > now THEN b.closed_until - now
  ELSE 0 END] AS answer
