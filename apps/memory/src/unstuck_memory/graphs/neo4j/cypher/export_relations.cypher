// export_relations: all versions of the relations that begin at some entities, from one moment.
MATCH (i:EntityId)
USING INDEX SEEK i:EntityId(project, uid)
WHERE i.project = $project AND i.uid > $after
WITH i ORDER BY i.project, i.uid LIMIT $limit
SET i.name = i.name
WITH collect(i) AS locked
UNWIND locked AS i
CALL (i) {
  MATCH (i)-[r:RELATES|RELATED]->()
  WITH r ORDER BY r.uid, r.version
  RETURN collect(properties(r)) AS versions
}
RETURN i.uid AS uid, versions ORDER BY uid
