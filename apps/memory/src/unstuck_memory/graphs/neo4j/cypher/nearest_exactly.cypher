// nearest_exactly: by comparing all vectors of the project.
MATCH (e:Entity)
WHERE e.project = $project {of_types}
MATCH (e)-[c:EMBEDDED {model: $model}]->(v)
WHERE c.version = e.version
WITH e, c.observation AS observation, vector.similarity.cosine(v.vector, $vector) AS similarity ORDER BY similarity DESC
WITH e, collect([similarity, observation])[0] AS best
RETURN e.uid, best[0], best[1] ORDER BY best[0] DESC, e.name LIMIT $limit
