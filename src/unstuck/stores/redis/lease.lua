-- lease: take due jobs of queues that are not paused, the best rank first. It costs an attempt, and the fence grows.
-- needs: line, lanes, erase, parent, finish, hold, measure
local PROMOTE_AT_ONCE = 1000

-- How many jobs may be taken of a queue: by the caller's limits, and by those that the queue has for everybody.
local function room(q, share)
    local free = math.min(share[2], ask.limit)
    local most = math.min(share[3] or math.huge, q.concurrency or math.huge)
    if most < math.huge then
        free = math.min(free, most - redis.call('LLEN', q.base .. 'active'))
    end
    if q.max then
        free = math.min(free, q.max - tonumber(redis.call('GET', q.base .. 'limiter') or '0'))
    end
    return free
end

-- Fail a job unrun, because a worker that knows no crash budgets has said so.
local function fail_unrun(q, id, why)
    local said = cjson.encode({category = 'PERMANENT', code = 'deferred', message = why})
    local facts = redis.call('HMGET', q.base .. id, 'fence')
    redis.call('HSET', q.base .. id, 'failedReason', why, 'error', said, 'error_at', whole(now), 'error_code', 'deferred',
        'error_category', 'PERMANENT', 'settled', 'failed ' .. (facts[1] or '0'), 'finishedOn', whole(now))
    redis.call('HDEL', q.base .. id, 'defa')
    say(q, 'failed', id, 'failedReason', why, 'prev', 'waiting', 'by', 'unstuck')
    finish(q, id, 'failed', true)
    flush()
    tell(q, id, 'failed', '{"message":' .. cjson.encode(why) .. '}')
    tell(q, id, 'alert', '{"alert":"dead_letter","message":' .. cjson.encode(why) .. '}')
    tally(q, 'failed', 1)
    measure(q, 'failed', 1)
end

-- A word for what is to be done when a job ends, if there is anything: for a parent, for others of its kind, to remove it.
local function ties(facts)
    local removed = facts.opts and string.find(facts.opts, 'removeOn', 1, true)
    return (facts.parentKey or facts.deid or removed) and ' tied' or ''
end

local function take(q, found, lease)
    local id = found.id
    local key = q.base .. id
    local row, facts = redis.call('HGETALL', key), {}
    for at = 1, #row, 2 do
        facts[row[at]] = row[at + 1]
    end
    local there = facts.name or not gone(q, id)
    if there and found.place ~= '0' and not q.laned then
        gather(q, 'leave', id)
    elseif not leave(q, id, facts.lane) or not there then
        if not there then -- an entry whose job is gone
            tell(q, nil, 'reaper:removed', '{"entry":' .. cjson.encode(id) .. ',"why":"it has no job"}')
        end
        return
    end
    if not facts.policy then -- a job of somebody else's
        redis.call('ZADD', q.base .. 'unstuck:all', 'NX', whole((as_number(facts.timestamp) or now) * 1000), id)
    end
    if facts.defa then
        fail_unrun(q, id, facts.defa)
        return
    end
    if facts.stage or facts.progress then
        redis.call('HDEL', key, 'stage', 'progress')
        row = redis.call('HGETALL', key)
    end
    gather(q, 'start', id)
    local fence, starts = next_fence(facts.fence), whole((as_number(facts.ats) or 0) + 1)
    local ends = hold(q, id, fence, ask.owner, lease)
    redis.call('HSET', key, 'fence', fence, 'leased', starts .. ' ' .. found.place .. ties(facts), 'ats', starts, 'processedOn',
        time, 'pb', ask.owner)
    say(q, 'active', id, 'prev', 'waiting')
    if ask.routine then
        tell(q, id, 'leased', '{"fence":' .. fence .. ',"owner":' .. cjson.encode(ask.owner) .. '}')
    end
    return {q.place, id, 'processing', also(row, 'fence', fence, 'processedOn', time, 'pb', ask.owner, 'lease_until', ends)}
end

even_if_full()
local found = {}
for place, share in ipairs(ask.shares) do
    local q = queue(place)
    local free = not q.paused and room(q, share) or 0
    if free > 0 then
        promote(q, PROMOTE_AT_ONCE)
        local some = share[4] and lane_line(q, free, share[4]) or line(q, free, #ask.shares > 1 or ask.look)
        for order, one in ipairs(some) do
            one.order = order
            found[#found + 1] = one
        end
    end
    redis.call('SADD', KEYS[2], q.name)
end
if #ask.shares > 1 then
    table.sort(found, function(one, other)
        if one.rank ~= other.rank then
            return one.rank < other.rank
        end
        if one.q ~= other.q then
            return one.q.place < other.q.place
        end
        return one.order < other.order
    end)
end

if ask.look then -- for whoever compares several servers
    local ranks = {}
    for place, one in ipairs(found) do
        ranks[place] = whole(one.rank)
    end
    chime()
    return ranks
end

local jobs, taken = {}, {}
for place = 1, math.min(ask.limit, #found) do
    local q = found[place].q
    local job = take(q, found[place], ask.shares[q.place][1])
    if job then
        jobs[#jobs + 1] = job
        taken[q] = (taken[q] or 0) + 1
    end
end
flush()
for place in ipairs(ask.shares) do
    local q = queue(place)
    if q.max and taken[q] then
        local count = redis.call('INCRBY', q.base .. 'limiter', taken[q])
        if count == taken[q] then
            redis.call('PEXPIRE', q.base .. 'limiter', whole(q.duration or 1000))
        end
    end
    -- For the next who waits, as this one may have taken the bell.
    q.ready = redis.call('ZCARD', q.base .. 'prioritized') > 0 or redis.call('LLEN', q.base .. 'wait') > 0
    q.later = not q.ready
    if not q.ready then
        redis.call('ZREM', q.base .. 'marker', '0') -- or somebody would come for what was just taken
    end
end
chime()
return jobs
