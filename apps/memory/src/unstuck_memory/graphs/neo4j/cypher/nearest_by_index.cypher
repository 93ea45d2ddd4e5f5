// nearest_by_index: the index gives $reach vectors of all projects, and their similarity is computed again, because the index rounds
// them. The first answer is how many it gave.
CALL db.index.vector.queryNodes($index, $reach, $vector) YIELD node AS v
WITH collect(v) AS near
CALL (near) {
  UNWIND near AS v
  MATCH (e:Entity)-[c:EMBEDDED]->(v)
  WHERE c.version = e.version AND e.project = $project {of_types}
  WITH e, c.observation AS observation, vector.similarity.cosine(v.vector, $vector) AS similarity ORDER BY similarity DESC
  WITH e, collect([similarity, observation])[0] AS best
  WITH e.uid AS uid, e.name AS name, best ORDER BY best[0] DESC, name LIMIT $limit
  RETURN collect([uid, best[0], best[1]]) AS hits
}
RETURN size(near), hits
