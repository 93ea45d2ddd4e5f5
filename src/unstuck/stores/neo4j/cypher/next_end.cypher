// next_end: in how many milliseconds the next lease ends that has not ended yet.
CALL () {
  MATCH (j:{label})
  USING INDEX SEEK j:{label}(lock_until)
  WHERE j.lock_until >= timestamp() AND j.status = 'processing' AND ($queues IS NULL OR j.queue IN $queues)
  WITH j ORDER BY j.lock_until LIMIT 1
  RETURN min(j.lock_until) AS ends
}
RETURN ends - datetime.realtime().epochMillis AS answer
