// get_relation: the current one between two names.
MATCH (a:Entity {project: $project, name: $from})
MATCH (b:Entity {project: $project, name: $to})
CALL (a, b) {
  MATCH ()-[r:RELATES {from_uid: a.uid, to_uid: b.uid, relation_type: $type}]->() RETURN r
}
RETURN {relation} AS found
