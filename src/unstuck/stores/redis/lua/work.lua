-- work: is there anything to lease, and in how many milliseconds does the next delayed job become due?
local ready, due = 0, nil
for place in ipairs(ask.queues) do
    local q = queue(place)
    if not q.paused then
        if redis.call('EXISTS', q.base .. 'wait', q.base .. 'prioritized') > 0 then
            ready = 1
        end
        local head = redis.call('ZRANGE', q.base .. 'delayed', 0, 0, 'WITHSCORES')
        if head[2] then
            due = math.min(due or math.huge, math.floor(head[2] / 4096) - now)
        end
    end
end
return {ready, due and whole(due) or false}
