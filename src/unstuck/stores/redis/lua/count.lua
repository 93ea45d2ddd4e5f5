-- count: every queue in numbers: pending, delayed, processing, expired, completed, failed, cancelled, for how long its
-- next job has been due, why it is paused and halted, its counters, how many due jobs stand before the one asked about.
-- needs: line, expiry
local answers = {}

local function ahead(q, id)
    local score = tonumber(redis.call('ZSCORE', q.base .. 'prioritized', id) or '0')
    if score == 0 then
        return 0 -- not in line, or in the list that comes first
    end
    return redis.call('LLEN', q.base .. 'wait') + redis.call('ZCOUNT', q.base .. 'prioritized', '-inf', '(' .. exact(score))
end

for place in ipairs(ask.queues) do
    local q = queue(place)
    local delayed = redis.call('ZCARD', q.base .. 'delayed')
    local head = line(q, 1)[1]
    local why = q.paused and redis.call('HMGET', q.base .. 'unstuck:pause', 'why', 'halt') or {false, false}
    answers[place] = {
        redis.call('LLEN', q.base .. 'wait') + redis.call('ZCARD', q.base .. 'prioritized') + delayed
            + redis.call('ZCARD', q.base .. 'waiting-children'),
        redis.call('ZCOUNT', q.base .. 'delayed', whole((now + 1) * 4096), '(' .. whole(FAR_END * 4096)),
        redis.call('LLEN', q.base .. 'active'),
        redis.call('ZCOUNT', q.base .. 'unstuck:leases', '-inf', '(' .. whole(now)),
        redis.call('ZCARD', q.base .. 'completed'),
        redis.call('ZCARD', q.base .. 'failed'),
        redis.call('SCARD', q.base .. 'unstuck:cancelled'),
        head and whole(now - due_at(q, head.id)) or false,
        q.paused and (why[1] or 'without a reason, as BullMQ and its dashboards do'),
        why[2],
        redis.call('HGETALL', q.base .. 'unstuck:counters'),
        q.name == ask.ahead_of[1] and math.min(ahead(q, ask.ahead_of[2]), ask.bound) or 0,
    }
end
return answers
