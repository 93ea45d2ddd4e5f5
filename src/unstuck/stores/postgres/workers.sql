-- workers: every worker seen lately, the youngest sign of life first.
SELECT started_at, seen_at, facts::text FROM {schema}.workers ORDER BY seen_at DESC, id
