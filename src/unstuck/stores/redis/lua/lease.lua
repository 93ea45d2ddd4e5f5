-- lease: take due jobs of queues that are not paused, the best rank first. It costs an attempt, and the fence grows.
-- needs: line, expiry, turns, lanes, parent, erase, theirs, iterate, finish, hold, measure
-- Answers those taken, and those that were not because their scheduler's next slot has to be asked for, as iterate does.
local PROMOTE_AT_ONCE = 1000

-- How many jobs may be taken of a queue: by the caller's limits, and by those that the queue has for everybody. And how
-- many may be looked at, as jobs that somebody had before are passed by but have their room left to them.
local function room(q, share)
    local wanted, free = math.min(share[2], ask.limit), math.huge
    local most = math.min(share[3] or math.huge, q.concurrency or math.huge)
    if most < math.huge then
        free = most - redis.call('LLEN', q.base .. 'active')
    end
    if q.max then
        free = math.min(free, q.max - tonumber(redis.call('GET', q.base .. 'limiter') or '0'))
    end
    return math.min(wanted, free), math.min(wanted + (q.only_new and ask.passed_by or 0), free)
end

-- Fail a job unrun, because a child of it failed, or a worker that knows no crash budgets asked for it. For others it was
-- taken and failed at once, as BullMQ's workers do it.
local function fail_unrun(q, id, facts)
    local why, failure = facts.defa, cjson.encode({category = 'PERMANENT', code = 'deferred', message = facts.defa})
    local starts, attempts = (as_number(facts.ats) or 0) + 1, (as_number(facts.atm) or 0) + 1
    redis.call('HSET', q.base .. id, 'failedReason', why, 'error', failure, 'error_at', time, 'error_code', 'deferred',
        'error_category', 'PERMANENT', 'settled', 'failed ' .. (facts.fence or '0'), 'processedOn', time, 'finishedOn', time,
        'ats', whole(starts), 'atm', whole(attempts))
    redis.call('HDEL', q.base .. id, 'defa')
    publish(q, 'active', id, 'prev', 'waiting')
    publish(q, 'failed', id, 'failedReason', why, 'prev', 'active', 'by', 'unstuck')
    local read, opts = pcall(cjson.decode, facts.opts or '{}')
    if attempts >= (read and type(opts) == 'table' and tonumber(opts.attempts) or 1) then
        publish(q, 'retries-exhausted', id, 'attemptsMade', whole(attempts))
    end
    finish(q, id, 'failed', true)
    flush()
    log_event(q, id, 'failed', '{"message":' .. cjson.encode(why) .. '}')
    log_event(q, id, 'alert', '{"alert":"dead_letter","message":' .. cjson.encode(why) .. '}')
    tally(q, 'failed', 1)
    measure(q, 'failed', 1)
end

-- A word for what is to be done when a job ends, if there is anything: for a parent, for others of its kind, to remove it.
local function ties(facts)
    local removed = facts.opts and string.find(facts.opts, 'removeOn', 1, true)
    return (facts.parentKey or facts.deid or removed) and ' tied' or ''
end

-- What the last run wrote of itself is not about this one.
local function forget_last(key, facts)
    return (facts.stage or facts.progress) and redis.call('HDEL', key, 'stage', 'progress') > 0
end

-- A job of somebody else's has the crash budget of its queue, for the reaper that finds it should its worker die.
local function entrust(key, facts, most)
    local budget = most and whole(most)
    if facts.policy or facts.max_crashes == budget then
        return false
    end
    if budget then
        redis.call('HSET', key, 'max_crashes', budget)
    else
        redis.call('HDEL', key, 'max_crashes')
    end
    return true
end

local unknown, bytes = {}, 0

local function take(q, found, share)
    local id = found.id
    local key = q.base .. id
    local row, facts = redis.call('HGETALL', key), {}
    for at = 1, #row, 2 do
        facts[row[at]] = row[at + 1]
    end
    if too_late(facts.expires_at, facts.atm) then -- no entry said so, because a worker of BullMQ's gave it back
        park(q, id, facts.lane)
        return
    end
    local there = facts.name or not gone(q, id)
    local behind_it = facts.rjk and iteration(q, id, facts.rjk, facts.opts)
    if behind_it and not behind_it.slot then
        unknown[#unknown + 1] = {q.place, id, facts.opts, time}
        return
    end
    if there and found.place ~= '0' and not q.laned then
        gather(q, 'leave', id)
    elseif not leave(q, id, facts.lane) or not there then
        if not there then -- an entry whose job is gone
            log_event(q, nil, 'reaper:removed', '{"entry":' .. cjson.encode(id) .. ',"why":"it has no job"}')
        end
        return
    end
    if facts.expires_at then
        unwatch(q, id)
    end
    if not facts.policy then -- a job of somebody else's
        redis.call('ZADD', q.base .. 'unstuck:all', 'NX', whole((as_number(facts.timestamp) or now) * 1000), id)
    end
    if facts.defa then
        fail_unrun(q, id, facts)
        if behind_it then
            iterate(q, behind_it)
        end
        return
    end
    local forgot, entrusted = forget_last(key, facts), entrust(key, facts, share[5])
    if forgot or entrusted then
        row = redis.call('HGETALL', key)
    end
    gather(q, 'start', id)
    local fence, starts = next_fence(facts.fence), whole((as_number(facts.ats) or 0) + 1)
    local ends = hold(q, id, fence, ask.owner, share[1])
    redis.call('HSET', key, 'fence', fence, 'leased', starts .. ' ' .. found.place .. ties(facts), 'ats', starts, 'processedOn',
        time, 'pb', ask.owner)
    publish(q, 'active', id, 'prev', 'waiting')
    if behind_it then
        iterate(q, behind_it)
    end
    if ask.routine then
        log_event(q, id, 'leased', '{"fence":' .. fence .. ',"owner":' .. cjson.encode(ask.owner) .. '}')
    end
    bytes = bytes + #(facts.data or '')
    return {q.place, id, 'processing', also(row, 'fence', fence, 'processedOn', time, 'pb', ask.owner, 'lease_until', ends)}
end

-- Among several queues turns decide how many jobs of each are taken, and where those are equal ranks: a point of our
-- priority, ten of BullMQ's, is a head start of a minute, and what lies in "wait" has one point more. Which jobs of a queue
-- these are its line decides.
local HEAD_START, LOWEST = 6000, 100
local function rank(q, some, share)
    local ranks = {}
    for place, one in ipairs(some) do
        ranks[place] = due_at(q, one.id) + HEAD_START * math.min(LOWEST, math.floor(one.place / SPAN))
    end
    table.sort(ranks)
    for place, one in ipairs(some) do
        one.rank, one.stands = ranks[place], share[7] + (place - 1) * share[8]
    end
end

-- Whether a queue has nothing that waits, nor a wakeup for it. Of a few it costs no more to look closer at once.
local FEW = 8
local function idle(place)
    local base = #ask.shares > FEW and string.sub(KEYS[place + 2], 1, -5)
    return base and redis.call('EXISTS', base .. 'wait', base .. 'prioritized', base .. 'delayed', base .. 'marker') == 0
end

even_if_full()
local found, looked = {}, {}
for place, share in ipairs(ask.shares) do
    if not idle(place) then
        looked[#looked + 1] = {place, share}
    end
end
for first = 1, #ask.queues, 1000 do
    redis.call('SADD', KEYS[2], unpack(ask.queues, first, math.min(#ask.queues, first + 999)))
end
for _, one in ipairs(looked) do
    local place, share = unpack(one)
    local q = queue(place)
    promote(q, PROMOTE_AT_ONCE) -- also while it is paused, as BullMQ does
    park_expired(q)
    q.only_new = share[6]
    local free, reach = 0, 0
    if not q.paused then
        free, reach = room(q, share)
    end
    if free > 0 then
        local some
        if share[4] then
            some = {lane_line(q, free, share[4])}
            some[1] = open_to_us(q, some[1], free)
        else
            some = {open_line(q, free, reach), {prioritized = free}}
        end
        some = in_turn(q, unpack(some))
        if #ask.shares > 1 or ask.look then
            rank(q, some, share)
        end
        for order, one in ipairs(some) do
            one.order = order
            found[#found + 1] = one
        end
    end
end
if #ask.shares > 1 then
    table.sort(found, function(one, other)
        if one.stands ~= other.stands then
            return one.stands < other.stands
        end
        if one.rank ~= other.rank then
            return one.rank < other.rank
        end
        if one.q ~= other.q then
            return one.q.place < other.q.place
        end
        return one.order < other.order
    end)
end

if ask.look then -- for a caller that compares several servers
    local ranks = {}
    for place, one in ipairs(found) do
        ranks[place] = whole(one.rank)
    end
    wake_up()
    return ranks
end

local jobs, taken = {}, {}
for place = 1, math.min(ask.limit, #found) do
    local q = found[place].q
    local job = take(q, found[place], ask.shares[q.place])
    if job then
        jobs[#jobs + 1] = job
        taken[q] = (taken[q] or 0) + 1
    end
    if bytes >= ask.bytes then -- as many as one answer carries
        break
    end
end
flush()
for _, one in ipairs(looked) do
    local q = queue(one[1])
    count_turns(q, taken[q] or 0)
    if q.max and taken[q] then
        local count = redis.call('INCRBY', q.base .. 'limiter', taken[q])
        if count == taken[q] then
            redis.call('PEXPIRE', q.base .. 'limiter', whole(q.duration or 1000))
        end
    end
    -- For the next worker that waits, as this one may have taken the wakeup.
    q.ready = redis.call('ZCARD', q.base .. 'prioritized') > 0 or redis.call('LLEN', q.base .. 'wait') > 0
    q.later = not q.ready
    if not q.ready then
        redis.call('ZREM', q.base .. 'marker', '0') -- or somebody would come for what was just taken
    end
end
wake_up()
return {jobs, unknown}
