// list_entities: a page of the current ones in order of names. The index compares by code points, as is wanted; without it the server
// compares a parameter by UTF-16.
MATCH (e:Entity)
USING INDEX SEEK e:Entity(project, name)
WHERE e.project = $project AND e.name > $after
RETURN {entity} AS found ORDER BY e.project, e.name LIMIT $limit
