// restore_ends: hold the ends of relations whose entities are not among the records.
UNWIND $uids AS uid
MATCH (e:EntityId {uid: uid})
WITH e ORDER BY e.name, e.uid
SET e.name = e.name
