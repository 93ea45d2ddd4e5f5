// restore_relations: archived versions, as they are.
UNWIND $states AS state
MATCH (a:EntityId {uid: state.from_uid})
MATCH (b:EntityId {uid: state.to_uid})
CREATE (a)-[r:RELATED]->(b)
SET r = state
