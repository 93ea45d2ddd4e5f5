// relations_of_at: those that were current at a time, of whoever had the names then.
MATCH (e:EntityId)-[r:RELATES|RELATED]-()
WHERE e.project = $project AND e.name IN $names AND r.valid_from <= $at AND coalesce(r.valid_to, $at + 1) > $at
WITH DISTINCT r
RETURN {relation} AS found ORDER BY found.from, found.to, found.relation_type LIMIT $limit
