-- settle: end leases. State, events, counters, pauses, halts and follow-up jobs are one step; what does not apply does nothing.
-- needs: line, expiry, parent, erase, theirs, finish, hold, spacing, add, outbox, measure, pause
-- An outcome is position of queue, id, fence, word, delay, result, crashed, pause, halt, and of a failure: text, category,
-- code, message, stack trace. A job that goes back without a delay keeps its run_at, and with it its old position in line.
local FINISHED = {completed = 'completed', failed = 'failed', cancelled = 'failed'}

-- Jobs that cannot be completed, because children of theirs are still to end or have failed; and which of both.
local function with_children()
    local keys, found = {}, {}
    for _, outcome in ipairs(ask.outcomes) do
        if outcome[4] == 'completed' then
            local key = queue(outcome[1]).base .. outcome[2]
            keys[#keys + 1] = key .. ':dependencies'
            keys[#keys + 1] = key .. ':unsuccessful'
        end
    end
    for first = 1, #keys, 1000 do
        local last = math.min(#keys, first + 999)
        if redis.call('EXISTS', unpack(keys, first, last)) > 0 then
            for at = first, last, 2 do
                local key = string.sub(keys[at], 1, -14)
                found[key] = redis.call('EXISTS', keys[at]) == 1 and 'children_pending'
                    or redis.call('EXISTS', keys[at + 1]) == 1 and 'children_failed' or nil
            end
        end
    end
    return found
end

even_if_full()
-- First find out what applies; also what a later outcome for the same job finds after an earlier one. One that cannot be
-- completed stays as it is.
local unfinished = with_children()
local answers, ended, known = {}, {}, {}
for place, outcome in ipairs(ask.outcomes) do
    local q, id, fence, word = queue(outcome[1]), outcome[2], outcome[3], outcome[4]
    local holds, facts = held(q, id, fence)
    local settled = word .. ' ' .. whole(fence)
    local earlier = ended[q.base .. id]
    local children = word == 'completed' and unfinished[q.base .. id]
    if holds and not earlier and children then
        answers[place] = children
    elseif holds and not earlier then
        answers[place], known[place] = 'applied', facts
        ended[q.base .. id] = settled
    else
        answers[place] = (earlier or redis.call('HGET', q.base .. id, 'settled')) == settled and 'repeated' or 'lost'
    end
end

local counted = {}
local function count(q, name)
    counted[q] = counted[q] or {}
    counted[q][name] = (counted[q][name] or 0) + 1
end

local function go_back(q, id, delay, leased)
    if delay > 0 then
        redis.call('HSET', q.base .. id, 'run_at', whole(now + delay), 'delay', whole(delay))
        postpone(q, id, now + delay)
        publish(q, 'delayed', id, 'delay', whole(now + delay))
    else
        local facts, place = redis.call('HMGET', q.base .. id, 'priority', 'lane'), string.match(leased, ' (%S+)')
        stand(q, id, as_number(facts[1]) or 0, due_at(q, id), facts[2] or nil, tonumber(place))
        publish(q, 'waiting', id, 'prev', 'active')
    end
end

-- The stack traces of a job's attempts, the last of them last: as many as its options allow, or else twenty.
local function traces(key, last)
    local known = redis.call('HMGET', key, 'stacktrace', 'opts')
    local limit = tonumber(string.match(known[2] or '', '"stackTraceLimit"%s*:%s*(%d+)')) or 20
    if limit == 0 then
        return '[]'
    end
    local read, all = pcall(cjson.decode, known[1] or '[]')
    local kept = {}
    if read and type(all) == 'table' then
        for place = math.max(1, #all - limit + 2), #all do
            kept[#kept + 1] = all[place]
        end
    end
    kept[#kept + 1] = last
    return cjson.encode(kept)
end

local function settle(outcome, facts)
    local q, id, word = queue(outcome[1]), outcome[2], outcome[4]
    local key, set = q.base .. id, FINISHED[word]
    let_go(q, id)
    local settled = word .. ' ' .. facts[FENCE]
    local stalled = outcome[7] and redis.call('HEXISTS', key, 'policy') == 0 -- to BullMQ a crash is a stall, and no attempt
    local unspent = word == 'released' or stalled or never_started(facts[LEASED])
    local attempts = whole((as_number(facts[ATTEMPTS]) or 0) + (unspent and 0 or 1))
    if set == 'completed' then
        redis.call('HSET', key, 'settled', settled, 'atm', attempts, 'finishedOn', time, 'returnvalue',
            outcome[6] or 'null')
    else
        redis.call('HSET', key, 'settled', settled, 'atm', attempts)
    end
    if outcome[10] then
        redis.call('HSET', key, 'error', outcome[10], 'error_at', time, 'error_category', outcome[11], 'error_code',
            outcome[12], 'failedReason', outcome[13], 'stacktrace', traces(key, outcome[14]))
    end
    if outcome[7] and not never_started(facts[LEASED]) then
        local field = stalled and 'stc' or 'crashes'
        redis.call('HSET', key, field, whole((as_number(redis.call('HGET', key, field)) or 0) + 1))
        count(q, 'crashed')
    end
    count(q, word)
    if not set then
        go_back(q, id, outcome[5], facts[LEASED])
        local expires_at = attempts == '0' and as_number(redis.call('HGET', key, 'expires_at'))
        if expires_at then
            watch(q, id, expires_at)
        end
        if outcome[7] then
            publish(q, 'stalled', id)
        end
        return
    end
    if set == 'completed' then
        publish(q, 'completed', id, 'returnvalue', outcome[6] or 'null', 'prev', 'active', 'by', 'unstuck')
    else
        redis.call('HSET', key, 'finishedOn', time)
        publish(q, 'failed', id, 'failedReason', outcome[13] or '', 'prev', 'active', 'by', 'unstuck')
        if word == 'cancelled' then
            redis.call('SADD', q.base .. 'unstuck:cancelled', id)
        else
            publish(q, 'retries-exhausted', id, 'attemptsMade', attempts)
        end
    end
    finish(q, id, set, facts[PARENT] or string.find(facts[LEASED], 'tied', 1, true))
end

for place, outcome in ipairs(ask.outcomes) do
    if answers[place] == 'applied' then
        settle(outcome, known[place])
    end
end
flush()
for _, event in ipairs(ask.events) do
    local outcome = ask.outcomes[event[1]]
    if answers[event[1]] == 'applied' then
        log_event(queue(outcome[1]), outcome[2], event[2], event[3])
    end
end
for _, more in ipairs(ask.counts) do
    if answers[more[1]] == 'applied' then
        tally(queue(ask.outcomes[more[1]][1]), more[2], 1)
    end
end
for q, names in pairs(counted) do
    for name, many in pairs(names) do
        tally(q, name, many)
        if FINISHED[name] then
            measure(q, FINISHED[name], many)
        end
    end
end
local jobs, pauses, halts = {}, {}, {}
for place, outcome in ipairs(ask.outcomes) do
    if answers[place] == 'applied' then
        pauses[outcome[1]] = outcome[8] or pauses[outcome[1]]
        halts[outcome[1]] = outcome[9] or halts[outcome[1]]
        for _, job in ipairs(ask.follow[place]) do
            jobs[#jobs + 1] = job
        end
        if ask.abroad then -- for queues on other servers
            leave_for_others(ask.abroad[place])
        end
    end
end
for place in ipairs(ask.queues) do
    if pauses[place] then
        pause(queue(place), pauses[place])
    end
    if halts[place] then
        halt(queue(place), halts[place])
    end
end
if jobs[1] then
    add_all(jobs, ask.routine)
end
for place in ipairs(ask.queues) do
    -- Nobody will come back to an earlier position: count from the start, as BullMQ does.
    local q = queue(place)
    if redis.call('EXISTS', q.base .. 'active', q.base .. 'prioritized') == 0 then
        redis.call('DEL', q.base .. 'pc')
        local ended = counted[q] and (counted[q].completed or counted[q].failed or counted[q].cancelled)
        if ended and redis.call('EXISTS', q.base .. 'wait') == 0 then
            redis.call('XADD', q.base .. 'events', 'MAXLEN', '~', q.kept, '*', 'event', 'drained')
        end
    end
end
wake_up()
return answers
