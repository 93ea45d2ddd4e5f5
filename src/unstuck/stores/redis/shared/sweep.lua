-- sweep: find jobs that are in no list any more, some at a time, and give them their place in line again. Every script of
-- BullMQ's and ours moves a job in one step, so only somebody who edits keys by hand, or a lost write, leaves one so.
local SWEPT_AT_ONCE, SWEPT_EVERY, SEARCHED = 1000, 60000, 10000
local SETS = {'completed', 'failed', 'prioritized', 'delayed', 'waiting-children'}
local LISTS = {'wait', 'paused'} -- "paused" is where a BullMQ before 6 keeps what waits while a queue is paused

local function listed(q, id, waiting)
    if active(q)[id] or waiting[id] then
        return true
    end
    for _, set in ipairs(SETS) do
        if redis.call('ZSCORE', q.base .. set, id) then
            return true
        end
    end
    return false
end

local function sweep(q)
    if not redis.call('SET', q.base .. 'unstuck:swept', 1, 'PX', SWEPT_EVERY, 'NX') then
        return
    end
    local waiting = {}
    for _, list in ipairs(LISTS) do
        if redis.call('LLEN', q.base .. list) > SEARCHED then
            return -- too long to be searched
        end
        for _, id in ipairs(redis.call('LRANGE', q.base .. list, 0, -1)) do
            waiting[id] = true
        end
    end
    local all, key = q.base .. 'unstuck:all', q.base .. 'unstuck:followed'
    local from = tonumber(redis.call('HGET', key, 'swept') or '0')
    local some = redis.call('ZRANGE', all, from, from + SWEPT_AT_ONCE - 1)
    redis.call('HSET', key, 'swept', #some < SWEPT_AT_ONCE and 0 or from + SWEPT_AT_ONCE)
    for _, id in ipairs(some) do
        local facts = not listed(q, id, waiting) and redis.call('HMGET', q.base .. id, 'name', 'priority', 'lane')
        if facts and facts[1] then
            stand(q, id, tonumber(facts[2]) or 0, due_at(q, id), facts[3])
            say(q, 'waiting', id)
            tell(q, id, 'reaper:adopted', '{"why":"it was in no list"}')
        elseif facts then
            redis.call('ZREM', all, id) -- others removed it
        end
    end
end
