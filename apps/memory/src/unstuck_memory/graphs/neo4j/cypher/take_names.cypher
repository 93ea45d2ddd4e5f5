// take_names: as lock_entities; a name that nobody has becomes an entity without a version, which write_entities completes, and is
// answered. The constraint on names makes a second taker wait and then find it.
UNWIND $takers AS taker
MERGE (e:Entity {project: $project, name: taker.name})
ON CREATE SET e:EntityId, e.uid = taker.uid, e.version = 0
SET e.entity_type = e.entity_type
WITH e
WHERE e.version = 0
RETURN e.name, e.uid
