// crowd: from here on nobody else leases from these queues until we have, so that what runs can be counted. Answers
// which are open, and how many of each lane they have running.
UNWIND $shares AS share
MATCH (q:{label}Queue {name: share.queue})
SET q.name = q.name
WITH collect({share: share, q: q}) AS queues
UNWIND queues AS one
WITH one.share AS share, one.q AS q
WHERE q.paused_at IS NULL
{promote}
WITH share
CALL (share) {
  MATCH (r:{label})
  USING INDEX SEEK r:{label}(status)
  WHERE r.status = 'processing' AND r.queue = share.queue
  WITH r.lane AS lane, count(*) AS running
  RETURN collect([lane, running]) AS busy
}
RETURN collect([share.queue, busy]) AS answer
