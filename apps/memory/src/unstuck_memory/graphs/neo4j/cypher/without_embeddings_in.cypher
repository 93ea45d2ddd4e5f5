// without_embeddings_in: those of one project.
MATCH (e:Entity)
USING INDEX SEEK e:Entity(project, missing_{number})
WHERE e.project = $project AND e.missing_{number} > $after
RETURN {entity} AS found ORDER BY e.project, e.missing_{number} LIMIT $limit
