// enqueue_space: let a job stand for a key from now on. The node is locked by enqueue_lock.
MATCH (s:{label}Spacing {queue: $queue, key: $key})
SET s += {job: $address, until: datetime.realtime().epochMillis + $interval}
RETURN count(*) AS answer
