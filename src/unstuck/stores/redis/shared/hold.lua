-- hold: whether a lease still holds its job. Time plays no part: who was late but not replaced still holds it.
-- A worker that knows no fences may have had the job since: then it is not running, was started once more, or has
-- another's lock.
local function held(q, id, fence)
    local facts = redis.call('HMGET', q.base .. id, 'fence', 'owner', 'ats', 'leased_ats', 'settled_fence', 'settled')
    local holds = facts[2] and tonumber(facts[1]) == fence and facts[3] == facts[4] and active(q)[id]
    if holds then
        local lock = redis.call('GET', q.base .. id .. ':lock')
        holds = not lock or lock == facts[2] .. ':' .. facts[1]
    end
    return holds and true or false, tonumber(facts[5]), facts[6]
end

-- Lease a job that is in the list of those that run.
local function hold(q, id, fence, owner, lease)
    redis.call('HSET', q.base .. id, 'fence', whole(fence), 'owner', owner, 'lease_until', whole(now + lease),
        'heartbeat_at', whole(now))
    redis.call('ZADD', q.base .. 'unstuck:leases', whole(now + lease), id)
    redis.call('SET', q.base .. id .. ':lock', owner .. ':' .. whole(fence), 'PX', whole(math.max(1, lease)))
    redis.call('SREM', q.base .. 'stalled', id)
end

-- Let go of a job that runs.
local function let_go(q, id)
    redis.call('LREM', q.base .. 'active', 1, id)
    redis.call('ZREM', q.base .. 'unstuck:leases', id)
    redis.call('SREM', q.base .. 'stalled', id)
    redis.call('DEL', q.base .. id .. ':lock')
    redis.call('HDEL', q.base .. id, 'owner', 'lease_until', 'heartbeat_at')
    active(q)[id] = nil
end

local function next_fence(fence)
    return math.max((tonumber(fence) or 0) + 1, now)
end
