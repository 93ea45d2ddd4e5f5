// find_fences: which versions are current, and the fences of their embeddings by some models.
UNWIND $uids AS uid
MATCH (e:EntityId:Entity {uid: uid})
RETURN e.uid, e.version, [fence IN $fences | e[fence]]
