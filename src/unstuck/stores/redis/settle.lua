-- settle: end leases. State, events, counters, pauses and follow-up jobs are one step; what does not apply does nothing.
-- needs: line, erase, parent, finish, hold, add
-- An outcome is place of queue, id, fence, word, delay, result, crashed, pause, and of a failure: text, category, code,
-- message, stack trace. A job that goes back without a delay keeps its run_at, and with it its old place in line.
local FINISHED = {completed = 'completed', failed = 'failed'}

even_if_full()
-- First find out what applies; also what a later outcome for the same job finds after an earlier one.
local answers, ended = {}, {}
for place, outcome in ipairs(ask.outcomes) do
    local q, id, fence, word = queue(outcome[1]), outcome[2], outcome[3], outcome[4]
    local holds, settled_fence, settled = held(q, id, fence)
    local earlier = ended[q.base .. id]
    if earlier then
        holds, settled_fence, settled = false, earlier[1], earlier[2]
    end
    if holds then
        answers[place] = 'applied'
        ended[q.base .. id] = {fence, word}
    else
        answers[place] = settled_fence == fence and settled == word and 'repeated' or 'lost'
    end
end

local function settle(outcome)
    local q, id, fence, word, delay = queue(outcome[1]), outcome[2], outcome[3], outcome[4], outcome[5]
    local key = q.base .. id
    let_go(q, id)
    local attempts = tonumber(redis.call('HGET', key, 'atm') or '0')
    if word ~= 'released' then
        attempts = redis.call('HINCRBY', key, 'atm', 1)
    end
    if outcome[7] then
        redis.call('HINCRBY', key, 'crashes', 1)
        tally(q, 'crashed', 1)
    end
    redis.call('HSET', key, 'settled', word, 'settled_fence', whole(fence))
    if outcome[9] then
        redis.call('HSET', key, 'error', outcome[9], 'error_at', whole(now), 'error_category', outcome[10], 'error_code',
            outcome[11], 'failedReason', outcome[12], 'stacktrace', outcome[13])
    end
    if word == 'completed' then
        redis.call('HSET', key, 'returnvalue', outcome[6] or 'null')
    else
        redis.call('HDEL', key, 'returnvalue')
    end
    tally(q, word, 1)
    local set = FINISHED[word]
    if set == 'completed' then
        say(q, 'completed', id, 'returnvalue', outcome[6] or 'null', 'prev', 'active', 'by', 'unstuck')
    elseif set then
        say(q, 'failed', id, 'failedReason', outcome[12] or '', 'prev', 'active', 'by', 'unstuck')
        say(q, 'retries-exhausted', id, 'attemptsMade', attempts)
    end
    if set then
        finish(q, id, set)
        return
    end
    local facts = redis.call('HMGET', key, 'priority', 'run_at', 'lane', 'place')
    if delay > 0 then
        redis.call('HSET', key, 'run_at', whole(now + delay), 'delay', whole(delay))
        postpone(q, id, now + delay)
        say(q, 'delayed', id, 'delay', whole(now + delay))
    else
        stand(q, id, tonumber(facts[1]) or 0, tonumber(facts[2]) or due_at(q, id), facts[3], tonumber(facts[4]))
        say(q, 'waiting', id, 'prev', 'active')
    end
end

for place, outcome in ipairs(ask.outcomes) do
    if answers[place] == 'applied' then
        settle(outcome)
    end
end
for _, event in ipairs(ask.events) do
    local outcome = ask.outcomes[event[1]]
    if answers[event[1]] == 'applied' then
        tell(queue(outcome[1]), outcome[2], event[2], event[3])
    end
end
for _, count in ipairs(ask.counts) do
    if answers[count[1]] == 'applied' then
        tally(queue(ask.outcomes[count[1]][1]), count[2], 1)
    end
end
local jobs, reasons = {}, {}
for place, outcome in ipairs(ask.outcomes) do
    if answers[place] == 'applied' then
        reasons[outcome[1]] = outcome[8] or reasons[outcome[1]]
        for _, job in ipairs(ask.follow[place]) do
            jobs[#jobs + 1] = job
        end
    end
end
for place in ipairs(ask.queues) do
    if reasons[place] then
        local q = queue(place)
        q.paused = true
        redis.call('HSET', q.base .. 'meta', 'paused', 1)
        redis.call('HSET', q.base .. 'unstuck:pause', 'why', reasons[place], 'at', whole(now))
        redis.call('DEL', q.base .. 'marker')
        redis.call('XADD', q.base .. 'events', 'MAXLEN', '~', q.kept, '*', 'event', 'paused')
        tell(q, nil, 'paused', '{"why":' .. cjson.encode(reasons[place]) .. '}')
    end
end
if jobs[1] then
    add_all(jobs, ask.routine)
end
for place in ipairs(ask.queues) do
    -- Nobody will come back to a place of his: count anew, as BullMQ does.
    local q = queue(place)
    if redis.call('EXISTS', q.base .. 'active', q.base .. 'prioritized') == 0 then
        redis.call('DEL', q.base .. 'pc')
    end
end
chime()
return answers
