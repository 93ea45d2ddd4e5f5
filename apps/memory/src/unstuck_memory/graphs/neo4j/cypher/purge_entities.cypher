// purge_entities: delete archived versions that ended before a time, some at once.
MATCH (v:EntityVersion)
WHERE v.project = $project AND v.valid_to < $before
WITH v, v.uid AS uid LIMIT $limit
DELETE v
RETURN count(*), collect(DISTINCT uid)
