// write_relations: give current relations their next version, and keep the one they had.
UNWIND $states AS state
MATCH (a)-[r:RELATES {uid: state.uid}]->(b)
WITH a, b, r, state, properties(r) AS past
SET r = state
CREATE (a)-[p:RELATED]->(b)
SET p = past, p.valid_to = state.valid_from
