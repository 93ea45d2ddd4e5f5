-- forget_spacing: delete what is known of keys for which no job stands any more, some at a time.
DELETE FROM spacing
WHERE (queue, key) IN (SELECT queue, key FROM spacing WHERE until <= :now ORDER BY until LIMIT :limit)
