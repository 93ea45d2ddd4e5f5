// find_restored_relations: what is there of these relations, or has their keys now.
UNWIND $relations AS one
CALL (one) {
  MATCH ()-[r:RELATED]->() WHERE r.uid = one.uid AND r.version IS NOT NULL RETURN r, false AS current
  UNION
  MATCH ()-[r:RELATES {uid: one.uid}]->() RETURN r, true AS current
  UNION
  MATCH ()-[r:RELATES {from_uid: one.from_uid, to_uid: one.to_uid, relation_type: one.relation_type}]->() RETURN r, true AS current
}
RETURN DISTINCT r.uid, r.version, [r.from_uid, r.to_uid, r.relation_type], current
