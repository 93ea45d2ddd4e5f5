// create_relations: between entities that are locked.
UNWIND $states AS state
MATCH (a:EntityId {uid: state.from_uid})
MATCH (b:EntityId {uid: state.to_uid})
CREATE (a)-[r:RELATES]->(b)
SET r = state
