-- lease: take due jobs of queues that are not paused, the best rank first. It costs an attempt, and the fence grows.
-- needs: line, lanes, erase, parent, finish, hold
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
    local fence = redis.call('HGET', q.base .. id, 'fence') or '0'
    redis.call('HSET', q.base .. id, 'failedReason', why, 'error', said, 'error_at', whole(now), 'error_code', 'deferred',
        'error_category', 'PERMANENT', 'settled', 'failed', 'settled_fence', fence)
    redis.call('HDEL', q.base .. id, 'defa')
    say(q, 'failed', id, 'failedReason', why, 'prev', 'waiting', 'by', 'unstuck')
    finish(q, id, 'failed')
    tell(q, id, 'failed', '{"message":' .. cjson.encode(why) .. '}')
    tell(q, id, 'alert', '{"alert":"dead_letter","message":' .. cjson.encode(why) .. '}')
    tally(q, 'failed', 1)
end

local function take(q, found, lease)
    local id = found.id
    local facts = redis.call('HMGET', q.base .. id, 'name', 'lane', 'defa', 'fence', 'born', 'timestamp')
    leave(q, id, facts[2])
    if not facts[1] then
        return -- an entry whose job is gone
    end
    if not facts[5] then -- a job of somebody else's that we see for the first time
        local born = whole((tonumber(facts[6]) or now) * 1000)
        redis.call('HSET', q.base .. id, 'born', born)
        redis.call('ZADD', q.base .. 'unstuck:all', born, id)
    end
    if facts[3] then
        fail_unrun(q, id, facts[3])
        return
    end
    redis.call('LPUSH', q.base .. 'active', id)
    active(q)[id] = true
    local fence = next_fence(facts[4])
    local starts = redis.call('HINCRBY', q.base .. id, 'ats', 1)
    redis.call('HSET', q.base .. id, 'leased_ats', starts, 'processedOn', whole(now), 'pb', ask.owner, 'place',
        exact(found.score))
    redis.call('HDEL', q.base .. id, 'stage', 'progress')
    hold(q, id, fence, ask.owner, lease)
    say(q, 'active', id, 'prev', 'waiting')
    if ask.routine then
        tell(q, id, 'leased', '{"fence":' .. whole(fence) .. ',"owner":' .. cjson.encode(ask.owner) .. '}')
    end
    return row(q, id, 'processing')
end

even_if_full()
local found = {}
for place, share in ipairs(ask.shares) do
    local q = queue(place)
    local free = not q.paused and room(q, share) or 0
    if free > 0 then
        promote(q, PROMOTE_AT_ONCE)
        local some = share[4] and lane_line(q, free, share[4]) or line(q, free)
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

local jobs, taken = {}, {}
for place = 1, math.min(ask.limit, #found) do
    local q = found[place].q
    local job = take(q, found[place], ask.shares[q.place][1])
    if job then
        jobs[#jobs + 1] = job
        taken[q] = (taken[q] or 0) + 1
    end
end
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
end
chime()
return jobs
