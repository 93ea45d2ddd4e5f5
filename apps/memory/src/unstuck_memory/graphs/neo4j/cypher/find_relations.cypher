// find_relations: current relations by key, in order of the keys; where there is none, until when there was one.
UNWIND range(0, size($keys) - 1) AS place
WITH place, $keys[place] AS key
OPTIONAL MATCH ()-[r:RELATES {from_uid: key.from_uid, to_uid: key.to_uid, relation_type: key.relation_type}]->()
CALL (key, r) {
  WITH key, r
  WHERE r IS NULL
  MATCH ()-[p:RELATED {from_uid: key.from_uid, to_uid: key.to_uid, relation_type: key.relation_type}]->()
  RETURN max(p.valid_to) AS free
}
RETURN CASE WHEN r IS NOT NULL THEN {relation} END, free ORDER BY place
