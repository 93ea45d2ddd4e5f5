// find_chunks: the vectors of entities, whatever version they belong to.
UNWIND $uids AS uid
MATCH (e:EntityId {uid: uid})-[:EMBEDDED]->(v)
RETURN DISTINCT v.model, v.hash
