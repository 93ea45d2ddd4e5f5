// delete_apoc: delete for old jobs, by APOC in transactions of some hundred each. Each of them checks again what it has
// locked. APOC counts nodes of all kinds that it deleted, but labels only of jobs: that number is the answer.
CALL () {
  {source}
  WITH f ORDER BY f.processed_at LIMIT $limit
  WITH f.id AS address ORDER BY address
  RETURN collect(address) AS addresses
}
CALL apoc.periodic.iterate(
  'UNWIND $addresses AS address RETURN address',
  'MATCH (c:{label} {id: address})
   SET c.id = c.id
   WITH c AS j, address
   WHERE j.status IN ["completed", "failed"] AND j.processed_at < timestamp() - $older_than
   REMOVE j:{label}
   DETACH DELETE j
   WITH address
   MATCH (e:{label}Event) WHERE e.job = address AND e.seq IS NOT NULL
   DELETE e',
  {batchSize: 200, parallel: false, params: {addresses: addresses, older_than: $older_than}}
) YIELD updateStatistics, failedOperations, errorMessages
RETURN [updateStatistics.labelsRemoved, failedOperations, keys(errorMessages)[0]] AS answer
