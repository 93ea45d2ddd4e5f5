-- pause: stop leasing from a queue, in a way that BullMQ's workers obey.
-- The hash unstuck:pause has the time and the reason of a pause, and the reason of a halt, which is also written as the reason
-- of the pause if the queue was not paused: stores/shared/counting.py gives the reason.
local function stop(q, why)
    redis.call('HSETNX', q.base .. 'unstuck:pause', 'at', whole(now))
    redis.call('HSET', q.base .. 'meta', 'paused', 1)
    q.paused = true
    redis.call('DEL', q.base .. 'marker')
    redis.call('XADD', q.base .. 'events', 'MAXLEN', '~', q.kept, '*', 'event', 'paused')
    log_event(q, nil, 'paused', '{"why":' .. cjson.encode(why) .. '}')
end

-- BullMQ resumes without knowing of our reasons: what it left behind is no reason of a later pause.
local function forget_reasons(q)
    if not q.paused then
        redis.call('DEL', q.base .. 'unstuck:pause')
    end
end

-- A second pause keeps the first one's time and takes the new reason.
local function pause(q, why)
    forget_reasons(q)
    redis.call('HSET', q.base .. 'unstuck:pause', 'why', why)
    stop(q, why)
end

local function halt(q, why)
    forget_reasons(q)
    local known = redis.call('HMGET', q.base .. 'unstuck:pause', 'why', 'halt')
    if not q.paused or known[2] and known[1] == known[2] then
        redis.call('HSET', q.base .. 'unstuck:pause', 'why', why)
    end
    redis.call('HSET', q.base .. 'unstuck:pause', 'halt', why)
    stop(q, why)
end
