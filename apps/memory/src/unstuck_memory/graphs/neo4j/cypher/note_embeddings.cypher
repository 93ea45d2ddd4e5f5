// note_embeddings: which vectors entities have, and which they lack.
UNWIND $states AS state
MATCH (e:EntityId {uid: state.uid})
SET e += state
