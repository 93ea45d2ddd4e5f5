// purge_ids: delete the nodes of entities that have no version left, and are locked.
UNWIND $uids AS uid
MATCH (e:EntityId {uid: uid})
DETACH DELETE e
