-- count: every queue in numbers: pending, delayed, processing, expired, completed, failed, cancelled, for how long its
-- next job has been due, why it is paused, its counters.
-- needs: line
local answers = {}
for place in ipairs(ask.queues) do
    local q = queue(place)
    local delayed = redis.call('ZCARD', q.base .. 'delayed')
    local head = line(q, 1)[1]
    local why = q.paused and (redis.call('HGET', q.base .. 'unstuck:pause', 'why') or 'without a reason, as BullMQ and its dashboards do')
    answers[place] = {
        redis.call('LLEN', q.base .. 'wait') + redis.call('ZCARD', q.base .. 'prioritized') + delayed
            + redis.call('ZCARD', q.base .. 'waiting-children'),
        redis.call('ZCOUNT', q.base .. 'delayed', whole((now + 1) * 4096), '+inf'),
        redis.call('LLEN', q.base .. 'active'),
        redis.call('ZCOUNT', q.base .. 'unstuck:leases', '-inf', '(' .. whole(now)),
        redis.call('ZCARD', q.base .. 'completed'),
        redis.call('ZCARD', q.base .. 'failed'),
        redis.call('SCARD', q.base .. 'unstuck:cancelled'),
        head and whole(now - due_at(q, head.id)) or false,
        why,
        redis.call('HGETALL', q.base .. 'unstuck:counters'),
    }
end
return answers
