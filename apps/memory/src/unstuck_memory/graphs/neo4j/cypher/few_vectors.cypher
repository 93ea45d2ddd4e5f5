// few_vectors: how many vectors an exact search would compare, counted no further than it matters.
MATCH (e:Entity)
WHERE e.project = $project {of_types}
MATCH (e)-[c:EMBEDDED {model: $model}]->()
WHERE c.version = e.version
WITH 1 AS one LIMIT $limit
RETURN count(one)
