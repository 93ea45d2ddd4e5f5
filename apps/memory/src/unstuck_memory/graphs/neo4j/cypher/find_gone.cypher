// find_gone: hold the nodes of entities, and answer those that have no version left.
UNWIND $uids AS uid
MATCH (i:EntityId {uid: uid})
SET i.name = i.name
WITH collect(i) AS held
UNWIND held AS e
WITH e
WHERE NOT e:Entity AND NOT EXISTS { MATCH (v:EntityVersion) WHERE v.uid = e.uid AND v.version IS NOT NULL }
RETURN e.uid
