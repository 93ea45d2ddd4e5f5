-- hold: whether a lease still holds its job. Time plays no part: who was late but not replaced still holds it.
-- A worker that knows no fences may have had the job since: then it is not running, was started once more, or has
-- another's lock. Answers with facts that are needed to end the lease, by their places below.
local FENCE, OWNER, STARTS, LEASED, SETTLED_FENCE, SETTLED, ATTEMPTS, PRIORITY, RUN_AT, LANE, PLACE, PARENT, KIND, OPTS =
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
local FACTS = {'fence', 'owner', 'ats', 'leased_ats', 'settled_fence', 'settled', 'atm', 'priority', 'run_at', 'lane',
    'place', 'parentKey', 'deid', 'opts'}

local function held(q, id, fence)
    local facts = redis.call('HMGET', q.base .. id, unpack(FACTS))
    local holds = facts[OWNER] and tonumber(facts[FENCE]) == fence and facts[SETTLED_FENCE] ~= facts[FENCE]
        and facts[STARTS] == facts[LEASED] and active(q)[id]
    if holds then
        local lock = redis.call('GET', q.base .. id .. ':lock')
        holds = not lock or lock == facts[OWNER] .. ':' .. facts[FENCE]
    end
    return holds and true or false, facts
end

-- Lease a job that is in the list of those that run; what else is to be written to its hash comes with it.
local function hold(q, id, fence, owner, lease, ...)
    local key, ends = q.base .. id, whole(now + lease)
    redis.call('HSET', key, 'fence', fence, 'owner', owner, 'lease_until', ends, 'heartbeat_at', time, ...)
    gather(q, 'lease', ends, id)
    redis.call('SET', key .. ':lock', owner .. ':' .. fence, 'PX', math.max(1, lease))
    return ends
end

-- Let go of a job that runs. Those that began first stand last in the list. What its hash says of the lease stays
-- there: it means nothing once that lease is settled.
local function let_go(q, id)
    redis.call('LREM', q.base .. 'active', -1, id)
    gather(q, 'unlease', id)
    gather(q, 'well', id)
    gather(q, 'unlock', q.base .. id .. ':lock')
    active(q)[id] = nil
end

-- As text, as it is written and told.
local function next_fence(fence)
    local least = (tonumber(fence) or 0) + 1
    return least > now and whole(least) or time
end
