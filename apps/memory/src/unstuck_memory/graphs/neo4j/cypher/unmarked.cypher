// unmarked: some of those entities that were written before the newest model was known, and whether they have vectors nevertheless.
MATCH (found:Entity)
WHERE found.models < $models
WITH found LIMIT $limit
WITH found ORDER BY found.project, found.name
SET found.entity_type = found.entity_type
WITH collect(found) AS held
UNWIND held AS e
WITH e
WHERE e.models < $models
RETURN e.uid, e.valid_from, [key IN keys(e) WHERE key STARTS WITH 'fence_']
