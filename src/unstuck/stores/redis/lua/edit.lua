-- edit: give jobs that are pending another priority or time.
-- needs: line, expiry
local count = 0
for _, ref in ipairs(ask.refs) do
    local q, id = queue(ref[1]), ref[2]
    local facts = redis.call('HMGET', q.base .. id, 'lane', 'priority', 'expires_at')
    if not gone(q, id) and leave(q, id, facts[1]) then
        local run_at = ask.run_at or due_at(q, id)
        local priority = ask.priority or as_number(facts[2]) or 0
        redis.call('HSET', q.base .. id, 'priority', priority, 'run_at', whole(run_at), 'delay',
            whole(math.max(0, run_at - now)))
        if run_at > now then
            postpone(q, id, run_at)
        else
            stand(q, id, priority, run_at, facts[1])
        end
        if as_number(facts[3]) then
            watch(q, id, as_number(facts[3]))
        end
        log_event(q, id, 'edited', ask.details)
        count = count + 1
    end
end
wake_up()
return count
