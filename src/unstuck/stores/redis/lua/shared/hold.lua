-- hold: whether a lease still holds its job. Time plays no part: a worker that was late but not replaced still holds it.
-- A worker that knows no fences may have had the job since: then it is not running, or was started once more.
-- "leased" in a job's hash is which of its starts the lease is for, the position in line that it had, and words if its end
-- is not all there is to do, or if it was not started. Answers with facts that are needed to end the lease, by their indexes below.
local FENCE, LEASED, STARTS, ATTEMPTS, PARENT = 1, 2, 3, 4, 5 -- a flow may have given it a parent since it was leased

local function ours(leased, starts)
    return leased and string.match(leased, '^%d*') == string.match(starts or '', '^%d*')
end

-- Whether it was a reaper that took a job, because it was not started in time.
local function never_started(leased)
    return string.find(leased or '', 'expired', 1, true)
end

local function held(q, id, fence)
    local facts = redis.call('HMGET', q.base .. id, 'fence', 'leased', 'ats', 'atm', 'parentKey')
    local holds = tonumber(facts[FENCE]) == fence and ours(facts[LEASED], facts[STARTS]) and active(q)[id]
    return holds and true or false, facts
end

-- Lease a job that is in the list of those that run until a time, which is answered; its hash is the caller's business.
local function hold(q, id, fence, owner, lease)
    local ends = whole(now + lease)
    gather(q, 'lease', ends, id)
    redis.call('SET', q.base .. id .. ':lock', owner .. ':' .. fence, 'PX', whole(math.max(1, lease)))
    return ends
end

-- Let go of a job that runs. What its hash has of the lease stays there: it means nothing once that lease is settled.
local function let_go(q, id)
    gather(q, 'stop', id)
    gather(q, 'unlease', id)
    gather(q, 'well', id)
    gather(q, 'unlock', q.base .. id .. ':lock')
    active(q)[id] = nil
end

-- As text, as it is written and answered.
local function next_fence(fence)
    local least = (as_number(fence) or 0) + 1
    return least > now and whole(least) or time
end
