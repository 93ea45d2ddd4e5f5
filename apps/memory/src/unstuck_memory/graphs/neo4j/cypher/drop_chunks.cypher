// drop_chunks: of entities that are locked, by one model or, without a model, by all; and the vectors that they had.
UNWIND $uids AS uid
MATCH (e:EntityId {uid: uid})-[c:EMBEDDED]->(v)
WHERE c.model = $model OR $model IS NULL
WITH c, v.model AS model, v.hash AS hash
DELETE c
RETURN DISTINCT model, hash
