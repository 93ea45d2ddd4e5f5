// enqueue_standing: the job that stands for a key, whether it can be replaced because nobody ever leased it, its content, and
// whether the new job is there. Only one that waits is locked, so that nobody leases it before it is replaced: whoever settles a job may hold its lock and wait
// for that of the key. The node of the key is locked by enqueue_lock.
MATCH (s:{label}Spacing {queue: $queue, key: $key})
OPTIONAL MATCH (c:{label} {id: s.job})
FOREACH (one IN CASE WHEN $replaces AND c.status = 'pending' THEN [c] ELSE [] END | SET one.id = one.id)
WITH collect({s: s, c: c}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.s AS s, one.c AS j, now
RETURN CASE WHEN s.until > now THEN
  [s.job, coalesce($replaces AND j.status = 'pending' AND coalesce(j.fence, 0) = 0, false), j.digest,
    EXISTS { MATCH (:{label} {id: $address}) }]
END AS answer
