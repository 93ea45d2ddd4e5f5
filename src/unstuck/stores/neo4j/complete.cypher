// complete: settle for the usual case, leases that all end well. Says nothing that settle would not say. Rows are
// address, fence, number and result, in the order of addresses.
UNWIND $completed AS row
MATCH (c:{label} {id: row[0]})
SET c.fence = c.fence
WITH collect({c: c, row: row}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.row AS row, now
WHERE j.status = 'processing' AND j.fence = row[1]
SET j += {
  status: 'completed', processed_at: now, result: row[3], settled_fence: j.fence, settled: 'completed',
  lock_owner: null, lock_until: null, heartbeat_at: null
}
WITH j.queue AS queue, collect(row[2]) AS numbers
CREATE (:{label}Counter {queue: queue, name: 'completed', value: size(numbers)})
WITH collect(numbers) AS some
RETURN reduce(all = [], numbers IN some | all + numbers) AS answer
