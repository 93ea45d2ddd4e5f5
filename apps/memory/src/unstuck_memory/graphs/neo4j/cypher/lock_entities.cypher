// lock_entities: hold current entities until the end of the transaction. The names come in order, so that no two transactions wait
// for each other; SET takes the lock, also where it changes nothing. What was read before it is out of date.
UNWIND $names AS name
MATCH (e:Entity {project: $project, name: name})
SET e.entity_type = e.entity_type
