// logged: write the events `logged`, numbered in the order of their commits: a step that writes one waits for the others that do.
CALL (logged) {
  WITH logged WHERE size(logged) > 0
  MERGE (s:{label}Store {name: 'store'})
  ON CREATE SET s.last = 0
  SET s.name = s.name
  WITH s, logged, s.last AS last, datetime.realtime().epochMillis AS at
  SET s.last = last + size(logged)
  WITH logged, last, at
  UNWIND range(0, size(logged) - 1) AS n
  CREATE (:{label}Event {
    seq: last + 1 + n, at: at, type: logged[n].type, queue: logged[n].queue, job: logged[n].address,
    details: logged[n].details, owner: logged[n].owner
  })
  RETURN count(*) AS written
}
