// kept: records of a kind behind a name.
CALL () {
  MATCH (r:{label}Record) WHERE r.kind = $kind AND r.name > $after
  WITH r ORDER BY r.name LIMIT $limit
  RETURN collect([r.name, r.kept, r.updated_at]) AS found
}
RETURN found AS answer
