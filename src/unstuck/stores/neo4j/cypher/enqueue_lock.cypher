// enqueue_lock: make sure that keys have a node, and lock it, in the order given. A call with the same key waits here.
UNWIND $keys AS row
MERGE (s:{label}Spacing {queue: row.queue, key: row.key})
ON CREATE SET s.until = 0
SET s.key = s.key
RETURN count(*) AS answer
