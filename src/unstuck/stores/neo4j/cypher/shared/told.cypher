// told: write the events `told`, numbered in the order of their commits: who writes one waits for the others who do.
CALL (told) {
  WITH told WHERE size(told) > 0
  MERGE (s:{label}Store {name: 'store'})
  ON CREATE SET s.last = 0
  SET s.name = s.name
  WITH s, told, s.last AS last, datetime.realtime().epochMillis AS at
  SET s.last = last + size(told)
  WITH told, last, at
  UNWIND range(0, size(told) - 1) AS n
  CREATE (:{label}Event {
    seq: last + 1 + n, at: at, type: told[n].type, queue: told[n].queue, job: told[n].address,
    details: told[n].details, owner: told[n].owner
  })
  RETURN count(*) AS written
}
