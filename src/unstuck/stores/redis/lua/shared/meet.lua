-- meet: note jobs that others put into a queue, and forget those that they removed, so that listings have them all.
local LISTS = {'wait', 'active'}
local SETS = {'prioritized', 'delayed', 'completed', 'failed', 'waiting-children'}

local function meet(q)
    local all, sum = q.base .. 'unstuck:all', 0
    for _, name in ipairs(LISTS) do
        sum = sum + redis.call('LLEN', q.base .. name)
    end
    for _, name in ipairs(SETS) do
        sum = sum + redis.call('ZCARD', q.base .. name)
    end
    if sum == redis.call('ZCARD', all) then
        return
    end
    local there = {}
    local function note(ids)
        for _, id in ipairs(ids) do
            there[id] = true
            if not redis.call('ZSCORE', all, id) and not gone(q, id) then
                local came = as_number(redis.call('HGET', q.base .. id, 'timestamp')) or now
                redis.call('ZADD', all, whole(came * 1000), id)
            end
        end
    end
    for _, name in ipairs(LISTS) do
        note(redis.call('LRANGE', q.base .. name, 0, -1))
    end
    for _, name in ipairs(SETS) do
        note(redis.call('ZRANGE', q.base .. name, 0, -1))
    end
    local removed = {}
    for _, id in ipairs(redis.call('ZRANGE', all, 0, -1)) do
        if not there[id] and gone(q, id) then
            removed[id] = true
        end
    end
    forget(q, removed)
end
