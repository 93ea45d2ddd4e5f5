// export_entities: all versions of some entities, in order of their uids, from one moment: the lock keeps writers out.
MATCH (i:EntityId)
USING INDEX SEEK i:EntityId(project, uid)
WHERE i.project = $project AND i.uid > $after
WITH i ORDER BY i.project, i.uid LIMIT $limit
SET i.name = i.name
WITH collect(i.uid) AS uids
UNWIND uids AS uid
CALL (uid) {
  MATCH (e:EntityVersion)
  WHERE e.uid = uid AND e.version IS NOT NULL
  WITH e ORDER BY e.version
  RETURN collect({entity}) AS versions
}
RETURN uid, versions ORDER BY uid
