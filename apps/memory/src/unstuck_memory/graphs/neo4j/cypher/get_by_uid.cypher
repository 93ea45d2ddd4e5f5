// get_by_uid: current entities, in the order asked for.
UNWIND range(0, size($uids) - 1) AS place
MATCH (e:EntityId:Entity {uid: $uids[place]})
RETURN {entity} AS found ORDER BY place
