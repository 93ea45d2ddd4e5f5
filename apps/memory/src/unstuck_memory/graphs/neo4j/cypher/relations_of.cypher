// relations_of: current relations with one of the names at either end.
MATCH (e:Entity)-[r:RELATES]-()
WHERE e.project = $project AND e.name IN $names
WITH DISTINCT r
RETURN {relation} AS found ORDER BY found.from, found.to, found.relation_type LIMIT $limit
