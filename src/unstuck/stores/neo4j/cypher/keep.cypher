// keep: make a record, or change or delete it if it has this version. Then the record as it is. The lock on the kind holds off
// other changes. Version and value are one property, so that a reader without the lock never sees one without the other.
MERGE (k:{label}RecordKind {name: $kind})
SET k.name = k.name
WITH k
OPTIONAL MATCH (was:{label}Record {kind: $kind, name: $record})
WITH was, coalesce(toInteger(was.kept[0]), 0) = $version AS current
FOREACH (_ IN CASE WHEN current AND $value IS NOT NULL THEN [1] ELSE [] END |
  MERGE (r:{label}Record {kind: $kind, name: $record})
  SET r.kept = [toString(CASE WHEN $version = 0 THEN $first ELSE $version + 1 END), $value],
    r.updated_at = datetime.realtime().epochMillis)
FOREACH (gone IN CASE WHEN current AND $value IS NULL AND was IS NOT NULL THEN [was] ELSE [] END | DELETE gone)
WITH current
OPTIONAL MATCH (r:{label}Record {kind: $kind, name: $record})
RETURN CASE WHEN r IS NOT NULL THEN [r.kept, r.updated_at] END AS answer
