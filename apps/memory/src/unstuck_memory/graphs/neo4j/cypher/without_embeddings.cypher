// without_embeddings: by an index that holds only those. What is compared begins with the time since which they have waited.
MATCH (e:Entity)
USING INDEX SEEK e:Entity(missing_{number})
WHERE e.missing_{number} > $after
RETURN {entity} AS found ORDER BY e.missing_{number} LIMIT $limit
