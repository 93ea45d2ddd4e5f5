// find_restored: of entities that are locked, the name, the project, whether they are current, and the versions that are there.
UNWIND $uids AS uid
MATCH (i:EntityId {uid: uid})
CALL (uid) {
  MATCH (v:EntityVersion)
  WHERE v.uid = uid AND v.version IS NOT NULL
  RETURN collect(v.version) AS versions
}
RETURN uid, i.name, i.project, i:Entity, versions
