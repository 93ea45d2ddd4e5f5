// coverage: how many current entities there are, and how many have their vectors.
MATCH (e:Entity)
WHERE e.project = $project AND e.name > ''
RETURN count(e), count(e[$fence])
