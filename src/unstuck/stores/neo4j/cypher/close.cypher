// close: grant no token of a bucket for so long. A longer closure stays.
MERGE (b:{label}Bucket {name: $bucket})
ON CREATE SET b.stamp = 0
SET b.name = b.name
WITH b, datetime.realtime().epochMillis + $closed_for AS until
SET b.closed_until = CASE WHEN coalesce(b.closed_until, 0) > until THEN b.closed_until ELSE until END
RETURN b.closed_until AS answer
