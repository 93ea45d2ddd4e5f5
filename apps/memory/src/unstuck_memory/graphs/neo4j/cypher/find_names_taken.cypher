// find_names_taken: which of these names a current entity has.
UNWIND $names AS name
MATCH (e:Entity {project: $project, name: name})
RETURN e.name
