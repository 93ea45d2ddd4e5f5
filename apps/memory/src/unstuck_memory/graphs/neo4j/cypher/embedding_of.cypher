// embedding_of: the vectors of the current version, in the order in which they were stored.
MATCH (e:EntityId:Entity {uid: $uid})
WHERE e[$fence] IS NOT NULL
RETURN e.version, e[$fence], COLLECT {
  MATCH (e)-[c:EMBEDDED {model: $model}]->(v)
  WHERE c.version = e.version
  RETURN [v.hash, v.vector, c.observation] ORDER BY c.number
}
