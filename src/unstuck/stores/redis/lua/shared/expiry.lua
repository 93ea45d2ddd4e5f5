-- expiry: jobs that must be started by a certain time. Those that wait and were not started are in a set of their own, by
-- that time. When it is over they leave the line and wait for a reaper at the far end of "delayed", where nothing comes due.
local PARKED_AT_ONCE, FAR_END, FAR = 1000, 40000000000000, 250000000000000

local function watch(q, id, expires_at)
    redis.call('ZADD', q.base .. 'unstuck:expires', whole(expires_at), id)
end

local function unwatch(q, id)
    redis.call('ZREM', q.base .. 'unstuck:expires', id)
end

-- Whether a job that waits was not started in time.
local function too_late(expires_at, attempts)
    local ends = as_number(expires_at)
    return ends and ends <= now and (as_number(attempts) or 0) == 0
end

local function park(q, id, lane)
    if leave(q, id, lane) then
        redis.call('ZADD', q.base .. 'delayed', whole(FAR * 4096), id)
    end
    unwatch(q, id)
end

local function park_expired(q)
    local some = redis.call('ZRANGEBYSCORE', q.base .. 'unstuck:expires', '-inf', time, 'LIMIT', 0, PARKED_AT_ONCE)
    for _, id in ipairs(some) do
        local facts = redis.call('HMGET', q.base .. id, 'lane', 'expires_at', 'atm')
        if too_late(facts[2], facts[3]) and not gone(q, id) then
            park(q, id, facts[1])
        else
            unwatch(q, id)
        end
    end
end

local function parked(q, limit)
    return redis.call('ZRANGEBYSCORE', q.base .. 'delayed', whole(FAR_END * 4096), '+inf', 'LIMIT', 0, limit)
end
