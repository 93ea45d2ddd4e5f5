-- requeue: make finished jobs pending again with fresh budgets. The fence goes on, so old leases stay refused.
-- Who asks for that wants them to run, however late.
-- needs: line, parent, match, finished
local found = finished(ask.limit, true)
for _, one in ipairs(found) do
    local q, id = one.q, one.id
    local facts = redis.call('HMGET', q.base .. id, 'priority', 'lane')
    redis.call('ZREM', q.base .. one.set, id)
    redis.call('SREM', q.base .. 'unstuck:cancelled', id)
    redis.call('HDEL', q.base .. id, 'finishedOn', 'processedOn', 'returnvalue', 'failedReason', 'stage', 'progress', 'stc',
        'expires_at')
    redis.call('HSET', q.base .. id, 'run_at', whole(now), 'delay', 0, 'atm', 0, 'crashes', 0)
    stand(q, id, as_number(facts[1]) or 0, now, facts[2])
    take_back(q.base .. id, one.set)
    publish(q, 'waiting', id, 'prev', one.set)
    log_event(q, id, 'requeued', '{}')
end
wake_up()
return #found
