// fold: put counters that have come in many pieces together. The store's node is locked first, so that nobody folds a
// piece twice; its number of folds grows, so that a count meanwhile notices.
CALL () { MATCH (c:{label}Counter) RETURN count(c) AS pieces }
CALL (pieces) {
  WITH pieces WHERE pieces > $many
  MATCH (s:{label}Store {name: 'store'})
  SET s.name = s.name
  WITH s
  SET s.folds = coalesce(s.folds, 0) + 1
  WITH s
  MATCH (c:{label}Counter)
  WITH c.queue AS queue, c.name AS name, sum(c.value) AS value, collect(c) AS some
  FOREACH (c IN some | DELETE c)
  CREATE (:{label}Counter {queue: queue, name: name, value: value})
  RETURN count(*) AS folded
}
RETURN pieces AS answer
