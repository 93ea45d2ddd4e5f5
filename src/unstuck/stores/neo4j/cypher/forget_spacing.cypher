// forget_spacing: delete what is known of keys for which no job stands any more, some at a time. Locked, and looked at again.
CALL () {
  MATCH (c:{label}Spacing) WHERE c.until <= timestamp()
  WITH c ORDER BY c.until LIMIT $limit
  WITH c ORDER BY c.key, c.queue
  SET c.key = c.key
  WITH collect(c) AS locked
  WITH locked, datetime.realtime().epochMillis AS now
  UNWIND locked AS s
  WITH s WHERE s.until <= now
  DELETE s
  RETURN count(*) AS gone
}
RETURN gone AS answer
