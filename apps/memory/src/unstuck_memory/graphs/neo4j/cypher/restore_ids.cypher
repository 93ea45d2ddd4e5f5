// restore_ids: the nodes that stand for entities, held until the end of the transaction.
UNWIND $ids AS id
MERGE (e:EntityId {uid: id.uid})
ON CREATE SET e.project = $project, e.name = id.name
SET e.name = e.name
