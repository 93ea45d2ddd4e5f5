// delete: remove finished jobs and their events, the oldest first.
CALL () {
  {finished}
  WITH j, j.id AS address
  DETACH DELETE j
  RETURN collect(address) AS gone
}
CALL (gone) {
  UNWIND gone AS address
  MATCH (e:{label}Event) WHERE e.job = address AND e.seq IS NOT NULL
  DELETE e
  RETURN count(*) AS forgotten
}
RETURN size(gone) AS answer
