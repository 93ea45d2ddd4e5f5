// restore_current: current versions, as they are.
UNWIND $states AS state
MATCH (e:EntityId {uid: state.uid})
SET e = state, e:Entity:EntityVersion
