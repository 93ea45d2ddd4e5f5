// relation_history: all versions of all relations of this type between entities that had the names.
MATCH (a:EntityId {project: $project, name: $from})
MATCH (b:EntityId {project: $project, name: $to})
CALL (a, b) {
  MATCH ()-[r:RELATES {from_uid: a.uid, to_uid: b.uid, relation_type: $type}]->() RETURN r
  UNION ALL
  MATCH ()-[r:RELATED {from_uid: a.uid, to_uid: b.uid, relation_type: $type}]->() RETURN r
}
RETURN {relation} AS found ORDER BY found.valid_from
