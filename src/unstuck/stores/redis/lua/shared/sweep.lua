-- sweep: find jobs that are in no list any more, some at a time, and give them their position in line again; and entries
-- whose job is gone, which may be due only in years, and remove them. Every script of BullMQ's and ours moves a job in one
-- step, so only somebody who edits keys by hand, a server that evicts them, or a lost write, leaves one so.
local SWEPT_AT_ONCE, SWEPT_EVERY, SEARCHED = 1000, 60000, 10000
local SETS = {'completed', 'failed', 'prioritized', 'delayed', 'waiting-children'}
local LISTS = {'wait', 'paused'} -- "paused" is where a BullMQ before 6 keeps what waits while a queue is paused

local function listed(q, id, waiting)
    if active(q)[id] then
        return 'active'
    end
    if waiting[id] then
        return waiting[id]
    end
    for _, set in ipairs(SETS) do
        if redis.call('ZSCORE', q.base .. set, id) then
            return set
        end
    end
    return nil
end

-- Take an entry without a job out of its list.
local function strike(q, id, place)
    if place == 'wait' or place == 'paused' then
        redis.call('LREM', q.base .. place, 0, id)
    else
        redis.call('ZREM', q.base .. place, id)
    end
    log_event(q, nil, 'reaper:removed', '{"entry":' .. cjson.encode(id) .. ',"why":"it has no job"}')
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
            waiting[id] = list
        end
    end
    local all, key = q.base .. 'unstuck:all', q.base .. 'unstuck:followed'
    local from = tonumber(redis.call('HGET', key, 'swept') or '0')
    local some = redis.call('ZRANGE', all, from, from + SWEPT_AT_ONCE - 1)
    local removed, next_from = {}, from + #some
    for _, id in ipairs(some) do
        local place = listed(q, id, waiting)
        if not gone(q, id) then
            if not place then
                local facts = redis.call('HMGET', q.base .. id, 'priority', 'lane')
                stand(q, id, as_number(facts[1]) or 0, due_at(q, id), facts[2])
                publish(q, 'waiting', id)
                log_event(q, id, 'reaper:adopted', '{"why":"it was in no list"}')
            end
        elseif place ~= 'active' then -- those that run are left to the step that looks after leases
            if place then
                strike(q, id, place)
            end
            removed[id] = true
            next_from = next_from - 1 -- what stands behind it moves up
        end
    end
    forget(q, removed)
    redis.call('HSET', key, 'swept', #some < SWEPT_AT_ONCE and 0 or next_from)
end
