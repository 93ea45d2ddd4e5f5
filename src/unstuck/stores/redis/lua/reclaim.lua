-- reclaim: take over leases that had run out when the reaper read the clock, the longest silent first. The attempt was
-- counted when the job was leased. Then also take the jobs that were not started in time.
-- needs: line, expiry, hold, follow, forget, sweep, pause
local FUTURE = 60000 -- a beat from further ahead means that the clock was put back

-- The last sign of a holder: its last heartbeat, or its start.
local function last_sign(beat, start)
    return math.max(as_number(beat) or 0, as_number(start) or 0)
end

local function remove(q, id)
    redis.call('LREM', q.base .. 'active', 1, id)
    redis.call('ZREM', q.base .. 'unstuck:leases', id)
    active(q)[id] = nil
    log_event(q, nil, 'reaper:removed', '{"entry":' .. cjson.encode(id) .. ',"why":"it has no job"}')
end

-- Give a lease to jobs that run without one and whose holder was silent for the grace. One that has a live lock is
-- held by a worker that knows no leases but is well.
local function adopt(q)
    local adopted = 0
    local function grant(id, owner, lease)
        redis.call('HSET', q.base .. id, 'pb', owner, 'heartbeat_at', time)
        redis.call('ZADD', q.base .. 'unstuck:leases', whole(now + lease), id)
        log_event(q, id, 'reaper:adopted', '{"owner":' .. cjson.encode(owner) .. '}')
        adopted = adopted + 1
    end
    local leases = q.base .. 'unstuck:leases'
    local ahead = redis.call('ZRANGEBYSCORE', leases, whole(now + FUTURE), '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
    for at = 1, #ahead, 2 do
        local id, ends = ahead[at], ahead[at + 1]
        local facts = redis.call('HMGET', q.base .. id, 'pb', 'heartbeat_at', 'processedOn')
        local beat = last_sign(facts[2], facts[3])
        if facts[1] and adopted < ask.limit and beat > now + FUTURE then
            redis.call('HSET', q.base .. id, 'processedOn', time)
            grant(id, facts[1], ends - beat)
        end
    end
    if redis.call('ZCARD', leases) == redis.call('LLEN', q.base .. 'active') then
        return adopted
    end
    for _, id in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
        if not active(q)[id] then -- another's workers took it back
            redis.call('ZREM', leases, id)
        end
    end
    for id in pairs(active(q)) do
        if adopted < ask.limit and not redis.call('ZSCORE', leases, id) then
            local facts = redis.call('HMGET', q.base .. id, 'pb', 'heartbeat_at', 'processedOn', 'ats')
            local seen = last_sign(facts[2], facts[3])
            if gone(q, id) then -- an entry whose job is gone
                remove(q, id)
            elseif seen < now - ask.grace and redis.call('EXISTS', q.base .. id .. ':lock') == 0 then
                redis.call('HSET', q.base .. id, 'leased', (facts[4] or '') .. ' - tied')
                redis.call('HSETNX', q.base .. id, 'fence', time)
                grant(id, facts[1] or 'unknown', ask.grace)
            end
        end
    end
    return adopted
end

local look = math.min(now, ask.as_of or now)
local dead = {}
for _, owner in ipairs(ask.of or {}) do
    dead[owner] = true
end

-- Time in which a holder could not reach the store does not count against it.
local function deaf(beat)
    local sum = 0
    for _, span in ipairs(ask.blind) do
        sum = sum + math.max(0, (look - span[2]) - math.max(look - span[1], beat))
    end
    return sum
end

local function lapsed(facts, ends)
    if ask.of then
        return dead[facts[1]]
    end
    local beat = last_sign(facts[2], facts[3])
    return ends + deaf(beat > 0 and beat or ends) < look
end

even_if_full()
local adopted, found = 0, {}
for place in ipairs(ask.queues) do
    local q = queue(place)
    follow(q)
    sweep(q)
    forget_reasons(q)
    adopted = adopted + adopt(q)
    local until_ = ask.of and '+inf' or '(' .. whole(look)
    local some = redis.call('ZRANGEBYSCORE', q.base .. 'unstuck:leases', '-inf', until_, 'WITHSCORES')
    local mine = 0
    for at = 1, #some, 2 do
        local id, ends = some[at], tonumber(some[at + 1])
        local facts = redis.call('HMGET', q.base .. id, 'pb', 'heartbeat_at', 'processedOn')
        if active(q)[id] and gone(q, id) then
            remove(q, id)
        elseif lapsed(facts, ends) and active(q)[id] then
            found[#found + 1] = {q, id, ends}
            mine = mine + 1
        end
        if mine == ask.limit then
            break
        end
    end
    if not ask.of then
        park_expired(q)
        for _, id in ipairs(parked(q, ask.limit)) do
            if gone(q, id) then
                strike(q, id, 'delayed')
            else
                found[#found + 1] = {q, id, as_number(redis.call('HGET', q.base .. id, 'expires_at')) or now, true}
            end
        end
    end
end
table.sort(found, function(one, other)
    return one[3] < other[3]
end)

local jobs, bytes = {}, 0
for place = 1, math.min(ask.limit, #found) do
    local q, id = found[place][1], found[place][2]
    if bytes >= ask.bytes then -- as many as one answer carries
        break
    end
    bytes = bytes + redis.call('HSTRLEN', q.base .. id, 'data')
    local expired = found[place][4]
    local was = row(q, id, expired and 'pending' or 'processing')
    local facts = redis.call('HMGET', q.base .. id, 'fence', 'ats', 'leased')
    local fence, stood = next_fence(facts[1]), string.match(facts[3] or '', ' .*$') or ''
    if expired then
        stood = ' - expired tied'
        redis.call('ZREM', q.base .. 'delayed', id)
        gather(q, 'start', id)
        publish(q, 'active', id, 'prev', 'waiting')
    end
    hold(q, id, fence, ask.owner, ask.lease)
    redis.call('HSET', q.base .. id, 'fence', fence, 'pb', ask.owner, 'heartbeat_at', time, 'leased', (facts[2] or '') .. stood)
    jobs[place] = {was, fence}
end
flush()
local next_end
for place in ipairs(ask.queues) do
    local head = redis.call('ZRANGEBYSCORE', queue(place).base .. 'unstuck:leases', whole(now), '+inf', 'WITHSCORES',
        'LIMIT', 0, 1)
    if head[2] then
        next_end = math.min(next_end or math.huge, head[2] - now)
    end
    head = redis.call('ZRANGE', queue(place).base .. 'unstuck:expires', 0, 0, 'WITHSCORES')
    if head[2] then
        next_end = math.max(0, math.min(next_end or math.huge, head[2] - now))
    end
end
wake_up()
return {jobs, adopted, next_end and whole(next_end) or false}
