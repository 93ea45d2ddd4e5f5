// complete: settle for the usual case, leases that all end well. Answers nothing that settle would not answer. Rows are
// address, fence, number and result, in the order of addresses.
UNWIND $completed AS row
MATCH (c:{label} {id: row[0]})
SET c.id = c.id
WITH collect({c: c, row: row}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.row AS row, now
WHERE j.status = 'processing' AND j.fence = row[1]
SET j += {
  status: 'completed', processed_at: now, settled_fence: j.fence, settled: 'completed',
  lock_owner: null, lock_until: null, heartbeat_at: null
}, j += CASE WHEN row[3] IS NULL THEN {} ELSE {result: row[3]} END
WITH j.queue AS queue, collect(row[2]) AS numbers
CREATE (:{label}Counter {queue: queue, name: 'completed', value: size(numbers)})
WITH collect(numbers) AS some
RETURN reduce(all = [], numbers IN some | all + numbers) AS answer
