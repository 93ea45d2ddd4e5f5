// find_relations_of: the current relations of current entities, each once.
UNWIND $uids AS uid
MATCH (e:EntityId {uid: uid})-[r:RELATES]-()
WITH DISTINCT r
RETURN {relation}
