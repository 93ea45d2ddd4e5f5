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
            if not redis.call('ZSCORE', all, id) then
                local facts = redis.call('HMGET', q.base .. id, 'timestamp', 'name')
                if facts[2] then
                    redis.call('ZADD', all, whole((tonumber(facts[1]) or now) * 1000), id)
                end
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
        if not there[id] and redis.call('EXISTS', q.base .. id) == 0 then
            removed[id] = true
            redis.call('ZREM', all, id)
            redis.call('SREM', q.base .. 'unstuck:cancelled', id)
        end
    end
    if next(removed) then -- their events go with them
        for _, text in ipairs(redis.call('ZRANGE', q.base .. 'unstuck:events', 0, -1)) do
            local read, said = pcall(cjson.decode, string.match(text, '^%d+ %d+ (.*)$'))
            if read and removed[said[2]] then
                redis.call('ZREM', q.base .. 'unstuck:events', text)
            end
        end
    end
end
