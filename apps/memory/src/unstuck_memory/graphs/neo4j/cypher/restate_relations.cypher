// restate_relations: nothing about them is new but that they were stated again.
UNWIND $states AS state
MATCH ()-[r:RELATES {uid: state.uid}]->()
SET r.updated_at = state.updated_at
