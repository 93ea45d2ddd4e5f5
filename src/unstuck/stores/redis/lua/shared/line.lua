-- line: the order in which jobs are taken. It is BullMQ's: first its list "wait", then its set "prioritized", where
-- score = priority * 2^32 + counter. Within a priority we keep jobs in the order in which they became due.
local SPAN = 4294967296

local function exact(number)
    return string.format('%.17g', number)
end

local function due_at(q, id)
    local facts = redis.call('HMGET', q.base .. id, 'run_at', 'timestamp', 'delay')
    return as_number(facts[1]) or (as_number(facts[2]) or now) + (as_number(facts[3]) or 0)
end

local function lane_key(q, lane)
    return q.base .. 'unstuck:lane' .. (lane and ':' .. lane or '')
end

-- Where lanes are in use, what is prioritized is also in the line of its lane, in the same order.
local function index(q, id, lane, score)
    redis.call('ZADD', lane_key(q, lane), exact(score), id)
    if lane then
        redis.call('SADD', q.base .. 'unstuck:lanes', lane)
    end
end

local function index_all(q)
    for _, lane in ipairs(redis.call('SMEMBERS', q.base .. 'unstuck:lanes')) do
        redis.call('DEL', lane_key(q, lane))
    end
    redis.call('DEL', lane_key(q), q.base .. 'unstuck:lanes')
    local found = redis.call('ZRANGE', q.base .. 'prioritized', 0, -1, 'WITHSCORES')
    for place = 1, #found, 2 do
        index(q, found[place], redis.call('HGET', q.base .. found[place], 'lane'), tonumber(found[place + 1]))
    end
end

local function use_lanes(q)
    if not q.laned then
        q.laned = true
        redis.call('SET', q.base .. 'unstuck:laned', 1)
        index_all(q)
    end
end

-- A score at the end of a class.
local function behind(q, priority, last)
    local counter = redis.call('INCR', q.base .. 'pc')
    if last and priority * SPAN + counter <= last then -- somebody began to count again
        counter = math.floor(last - priority * SPAN) + 1
        redis.call('SET', q.base .. 'pc', whole(counter))
    end
    return priority * SPAN + counter
end

-- A score between those that became due before and after a job.
local function between(q, priority, run_at)
    local key, floor, ceiling = q.base .. 'prioritized', whole(priority * SPAN), '(' .. whole((priority + 1) * SPAN)
    local low = redis.call('ZCOUNT', key, '-inf', '(' .. floor)
    local first, high = low, low + redis.call('ZCOUNT', key, floor, ceiling)
    while low < high do
        local middle = math.floor((low + high) / 2)
        if due_at(q, redis.call('ZRANGE', key, middle, middle)[1]) <= run_at then
            low = middle + 1
        else
            high = middle
        end
    end
    local above = tonumber(redis.call('ZRANGE', key, low, low, 'WITHSCORES')[2])
    local below = priority * SPAN
    if low > first then
        below = tonumber(redis.call('ZRANGE', key, low - 1, low - 1, 'WITHSCORES')[2])
    end
    return (below + above) / 2
end

-- Whether a job that comes back still fits where it was.
local function fits(q, priority, run_at, place)
    local key = q.base .. 'prioritized'
    local before = redis.call('ZREVRANGEBYSCORE', key, exact(place), whole(priority * SPAN), 'WITHSCORES', 'LIMIT', 0, 1)
    if before[1] and (tonumber(before[2]) == place or due_at(q, before[1]) > run_at) then
        return false
    end
    local after = redis.call('ZRANGEBYSCORE', key, exact(place), '(' .. whole((priority + 1) * SPAN), 'LIMIT', 0, 1)
    return not after[1] or run_at <= due_at(q, after[1])
end

local function score_for(q, priority, run_at, place)
    if place and math.floor(place / SPAN) == priority and fits(q, priority, run_at, place) then
        if tonumber(redis.call('GET', q.base .. 'pc') or '0') < place % SPAN then
            redis.call('SET', q.base .. 'pc', whole(math.ceil(place % SPAN)))
        end
        return place
    end
    local floor, ceiling = whole(priority * SPAN), '(' .. whole((priority + 1) * SPAN)
    local last = redis.call('ZREVRANGEBYSCORE', q.base .. 'prioritized', ceiling, floor, 'WITHSCORES', 'LIMIT', 0, 1)
    if last[1] and due_at(q, last[1]) > run_at then
        return between(q, priority, run_at)
    end
    return behind(q, priority, tonumber(last[2]))
end

-- Put a job that is due in line: where it was if it was there before, else behind those that were due before it.
local function stand(q, id, priority, run_at, lane, place)
    q.ready = true
    if priority == 0 then
        redis.call(place and 'RPUSH' or 'LPUSH', q.base .. 'wait', id)
        return
    end
    local score = score_for(q, priority, run_at, place)
    redis.call('ZADD', q.base .. 'prioritized', exact(score), id)
    if q.laned then
        index(q, id, lane, score)
    end
end

local function postpone(q, id, run_at)
    q.later = true
    local low, high = run_at * 4096, run_at * 4096 + 4095
    local last = redis.call('ZREVRANGEBYSCORE', q.base .. 'delayed', whole(high), whole(low), 'WITHSCORES', 'LIMIT', 0, 1)
    local score = last[2] and math.min(high, last[2] + 1) or low
    redis.call('ZADD', q.base .. 'delayed', whole(score), id)
end

-- Take a job out of line; answers whether it was there.
local function leave(q, id, lane)
    local gone = redis.call('ZREM', q.base .. 'prioritized', id)
    if gone == 0 then
        return redis.call('ZREM', q.base .. 'delayed', id) == 1 or redis.call('LREM', q.base .. 'wait', -1, id) == 1
    end
    if q.laned then
        local key = lane_key(q, lane)
        redis.call('ZREM', key, id)
        if lane and redis.call('EXISTS', key) == 0 then
            redis.call('SREM', q.base .. 'unstuck:lanes', lane)
        end
    end
    return true
end

-- Give delayed jobs that have become due their position in line, a bounded number at a time.
local function promote(q, limit)
    local key = q.base .. 'delayed'
    local due = redis.call('ZRANGEBYSCORE', key, 0, whole(now * 4096 + 4095), 'WITHSCORES', 'LIMIT', 0, limit)
    for place = 1, #due, 2 do
        local id, run_at = due[place], math.floor(due[place + 1] / 4096)
        local facts = redis.call('HMGET', q.base .. id, 'priority', 'lane')
        redis.call('ZREM', key, id)
        redis.call('HSET', q.base .. id, 'delay', 0, 'run_at', whole(run_at))
        stand(q, id, as_number(facts[1]) or 0, run_at, facts[2])
        publish(q, 'waiting', id, 'prev', 'delayed')
    end
end

-- Whether a job is left to workers that have room: somebody had it before, and the caller has none.
local function left_to_others(q, id)
    return q.only_new and redis.call('HEXISTS', q.base .. id, 'settled') == 1
end

-- Of some jobs in line the first that the caller may have.
local function open_to_us(q, some, limit)
    if not q.only_new then
        return some
    end
    local found = {}
    for _, one in ipairs(some) do
        if #found == limit then
            break
        end
        if not left_to_others(q, one.id) then
            found[#found + 1] = one
        end
    end
    return found
end

-- The head of a queue's line, the first to be taken first.
local function line(q, limit)
    local found = {}
    local waiting = redis.call('LRANGE', q.base .. 'wait', -limit, -1)
    for place = #waiting, 1, -1 do
        found[#found + 1] = {q = q, id = waiting[place], place = '0'}
    end
    if #found < limit then
        local some = redis.call('ZRANGE', q.base .. 'prioritized', 0, limit - #found - 1, 'WITHSCORES')
        for at = 1, #some, 2 do
            found[#found + 1] = {q = q, id = some[at], place = some[at + 1]}
        end
    end
    return found
end

-- The same of those that the caller may have. As a rule nothing is passed by; if it is, "reach" jobs are looked at.
local function open_line(q, limit, reach)
    local some = line(q, limit)
    local found = open_to_us(q, some, limit)
    if #found < #some then
        return open_to_us(q, line(q, reach), limit)
    end
    return found
end
