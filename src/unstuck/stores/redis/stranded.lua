-- stranded: what nobody will come back for, by queue: jobs that run without a lock or a lease of ours, entries without a
-- job, and locks of jobs that do not run. The ids that have a lock are those of ask.locked.
local answers = {}
for place in ipairs(ask.queues) do
    local q, stalled, missing, orphaned = queue(place), 0, 0, 0
    for id in pairs(active(q)) do
        local known = redis.call('ZSCORE', q.base .. 'unstuck:leases', id)
        if not known and redis.call('EXISTS', q.base .. id .. ':lock') == 0 then
            stalled = stalled + 1
        end
    end
    for list, command in pairs({wait = 'LRANGE', active = 'LRANGE', prioritized = 'ZRANGE', delayed = 'ZRANGE'}) do
        for _, id in ipairs(redis.call(command, q.base .. list, 0, ask.most - 1)) do
            if redis.call('EXISTS', q.base .. id) == 0 then
                missing = missing + 1
            end
        end
    end
    for _, id in ipairs(ask.locked[place]) do
        if not active(q)[id] and redis.call('EXISTS', q.base .. id .. ':lock') == 1 then
            orphaned = orphaned + 1
        end
    end
    answers[place] = {stalled, missing, orphaned}
end
return answers
