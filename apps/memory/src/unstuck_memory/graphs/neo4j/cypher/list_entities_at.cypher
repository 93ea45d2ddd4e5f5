// list_entities_at: a page of those that were current at a time, by an index for the same reason.
MATCH (e:EntityVersion)
USING INDEX SEEK e:EntityVersion(project, name, valid_from)
WHERE e.project = $project AND e.name > $after AND e.valid_from <= $at AND coalesce(e.valid_to, $at + 1) > $at
RETURN {entity} AS found ORDER BY e.project, e.name LIMIT $limit
