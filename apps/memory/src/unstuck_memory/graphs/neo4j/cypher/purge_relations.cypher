// purge_relations: delete archived versions that ended before a time, some at once.
MATCH ()-[r:RELATED]->()
WHERE r.project = $project AND r.valid_to < $before
WITH r LIMIT $limit
DELETE r
RETURN count(*)
