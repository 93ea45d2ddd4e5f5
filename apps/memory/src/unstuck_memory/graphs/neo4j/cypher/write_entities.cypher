// write_entities: give entities that are locked their next version, and keep the one they had as a node of its own. The new state
// replaces all properties: nothing about the old version's embedding remains, not even of a model that this writer does not know.
UNWIND $states AS state
MATCH (e:EntityId {uid: state.uid})
WITH e, state, {entity} AS past
SET e = state, e:EntityVersion
WITH past, state
WHERE past.version > 0
CREATE (v:EntityVersion)
SET v = past, v.valid_to = state.valid_from
