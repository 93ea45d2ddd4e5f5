// overtake: take the lease of `j` over. The attempt was counted when the job was leased;
// one that was not started in time has none.
WITH j, ended, now, {job} AS was
SET j += {
  status: 'processing', rank: null, due_at: null,
  fence: CASE WHEN coalesce(j.fence, 0) + 1 > now THEN j.fence + 1 ELSE now END,
  lock_owner: $owner, lock_until: now + $lease, heartbeat_at: now
}
WITH was, j.fence AS fence, ended ORDER BY ended
RETURN collect([was, fence]) AS answer
