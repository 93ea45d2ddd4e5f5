// give_back: return tokens that were not used, of those that were taken together.
OPTIONAL MATCH (b:{label}Bucket {name: $bucket})
SET b.name = b.name
WITH b
OPTIONAL MATCH (g:{label}Grant {bucket: $bucket, stamp: $stamp})
SET g.count = CASE WHEN g.count > $count THEN g.count - $count ELSE 0 END
RETURN count(g) AS answer
