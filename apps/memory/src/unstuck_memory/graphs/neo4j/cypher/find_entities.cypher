// find_entities: current entities by name, whether they have vectors, and the time.
UNWIND $names AS name
MATCH (e:Entity {project: $project, name: name})
WHERE e.version > 0
RETURN {entity}, any(key IN keys(e) WHERE key STARTS WITH 'fence_'), {now}
