// entity_history: all versions of all entities that had the name.
MATCH (e:EntityVersion)
WHERE e.project = $project AND e.name = $name AND e.valid_from IS NOT NULL
RETURN {entity} AS found ORDER BY e.valid_from
