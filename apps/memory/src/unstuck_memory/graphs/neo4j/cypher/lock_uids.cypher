// lock_uids: as lock_entities, in the same order.
UNWIND $uids AS uid
MATCH (e:EntityId:Entity {uid: uid})
WITH e ORDER BY e.project, e.name
SET e.entity_type = e.entity_type
