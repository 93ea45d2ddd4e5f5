// current: the entities of which these versions are current.
UNWIND $versions AS version
MATCH (e:EntityId:Entity {uid: version.uid})
WHERE e.version = version.version
RETURN {entity}
