// get_entities: the current ones of these names. They are put in order elsewhere: the server sorts parameters by UTF-16.
MATCH (e:Entity)
WHERE e.project = $project AND e.name IN $names
RETURN {entity}
