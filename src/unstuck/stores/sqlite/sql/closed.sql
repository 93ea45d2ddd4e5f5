-- closed: until when a bucket is closed.
SELECT closed_until FROM bucket WHERE name = :bucket AND closed_until > :now
