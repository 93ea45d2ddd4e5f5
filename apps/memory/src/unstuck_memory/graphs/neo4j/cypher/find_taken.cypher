// find_taken: of names that were just taken, in order, until when somebody had each before, and the first name that differs only in
// case or spaces; and the time.
UNWIND range(0, size($names) - 1) AS place
WITH place, $names[place] AS taken
CALL (taken) {
  MATCH (v:EntityVersion)
  WHERE v.project = $project AND v.name = taken.name AND v.valid_from IS NOT NULL
  WITH v ORDER BY v.project DESC, v.name DESC, v.valid_from DESC LIMIT 1
  RETURN max(v.valid_to) AS free
}
CALL (taken) {
  MATCH (o:Entity)
  WHERE o.project = $project AND o.folded = taken.folded
  RETURN min(o.name) AS similar
}
RETURN free, similar, {now} ORDER BY place
