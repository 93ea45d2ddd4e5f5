-- cancel: fail jobs that are not finished. A running one's lease is taken over and ended in this one step.
-- needs: line, expiry, parent, erase, theirs, finish, hold, measure
even_if_full()
local count = 0
for _, ref in ipairs(ask.refs) do
    local q, id = queue(ref[1]), ref[2]
    local status = state(q, id)
    local facts = redis.call('HMGET', q.base .. id, 'lane', 'fence', 'atm', 'leased')
    if not gone(q, id) and (status == 'pending' and leave(q, id, facts[1]) or status == 'processing') then
        if status == 'processing' then
            let_go(q, id)
            if not never_started(facts[4]) then
                redis.call('HSET', q.base .. id, 'atm', whole((as_number(facts[3]) or 0) + 1))
            end
        end
        local fence = next_fence(facts[2])
        redis.call('HSET', q.base .. id, 'fence', fence, 'settled', 'cancelled ' .. fence, 'error', ask.error,
            'error_at', whole(now), 'error_category', 'PERMANENT', 'error_code', 'cancelled', 'failedReason', ask.message,
            'finishedOn', whole(now))
        redis.call('SADD', q.base .. 'unstuck:cancelled', id)
        unwatch(q, id)
        publish(q, 'failed', id, 'failedReason', ask.message, 'prev', status == 'pending' and 'waiting' or 'active',
            'by', 'unstuck')
        finish(q, id, 'failed', true)
        flush()
        log_event(q, id, 'cancelled', '{}')
        tally(q, 'cancelled', 1)
        measure(q, 'failed', 1)
        count = count + 1
    end
end
wake_up()
return count
