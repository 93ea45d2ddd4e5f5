// next_end: in how many milliseconds the next lease ends that has not ended yet, or the next job expires.
CALL () {
  MATCH (j:{label})
  USING INDEX SEEK j:{label}(lock_until)
  WHERE j.lock_until >= timestamp() AND j.status = 'processing' AND ($queues IS NULL OR j.queue IN $queues)
  WITH j ORDER BY j.lock_until LIMIT 1
  RETURN min(j.lock_until) AS ends
}
CALL () {
  MATCH (j:{label})
  USING INDEX SEEK j:{label}(status, expires_at)
  WHERE j.status = 'pending' AND j.expires_at > timestamp() AND j.attempts = 0 AND ($queues IS NULL OR j.queue IN $queues)
  WITH j ORDER BY j.status, j.expires_at LIMIT 1
  RETURN min(j.expires_at) AS expires
}
WITH CASE WHEN expires < ends THEN expires ELSE coalesce(ends, expires) END AS ends
RETURN ends - datetime.realtime().epochMillis AS answer
