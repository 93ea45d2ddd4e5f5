// archive_entities: end the current versions of entities that are locked. The node that stands for the entity stays.
UNWIND $ends AS end
MATCH (e:EntityId:Entity {uid: end.uid})
WITH e, end, {entity} AS past
REMOVE e:Entity, e:EntityVersion
SET e = {uid: past.uid, project: past.project, name: past.name}
CREATE (v:EntityVersion)
SET v = past, v.valid_to = end.valid_to
