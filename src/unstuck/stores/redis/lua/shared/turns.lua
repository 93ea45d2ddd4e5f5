-- turns: every tenth job that is taken of a queue is the one that has waited longest, if that is more than ten minutes.
-- By priority alone what is least urgent might wait for ever.
local EVERY, LONG = 10, 600000
local CLASSES = 100 -- priorities that are compared in one step, the next ones in the next

-- When a job began to wait: when it became due, or was last taken. BullMQ sets "delay" to 0 once a delay is over.
local function waits_since(q, id)
    local facts = redis.call('HMGET', q.base .. id, 'processedOn', 'run_at', 'opts', 'timestamp')
    local since = math.max(due_at(q, id), as_number(facts[1]) or 0)
    if facts[2] or not string.find(facts[3] or '', '"delay"', 1, true) then
        return since
    end
    local read, opts = pcall(cjson.decode, facts[3])
    local delay = read and type(opts) == 'table' and as_number(opts.delay) or 0
    return math.max(since, (as_number(facts[4]) or now) + delay)
end

-- The first jobs of each priority of a line, as ids and scores.
local function heads(q, name, most)
    local key, turns = q.base .. name, q.base .. 'unstuck:turns'
    local turn, found = as_number(redis.call('HGET', turns, name)) or 0, {}
    local from, to = turn, '+inf'
    while #found < CLASSES do
        local head = redis.call('ZRANGEBYSCORE', key, whole(from), to, 'WITHSCORES', 'LIMIT', 0, 1)
        if head[1] then
            from = (math.floor(head[2] / SPAN) + 1) * SPAN
            found[#found + 1] = redis.call('ZRANGEBYSCORE', key, head[2], '(' .. whole(from), 'WITHSCORES', 'LIMIT', 0, most)
        elseif to == '+inf' and turn > 0 then
            from, to = 0, '(' .. whole(turn) -- and those before, with which the last step ended
        else
            break
        end
    end
    if turn > 0 or #found == CLASSES then
        redis.call('HSET', turns, name, #found < CLASSES and '0' or whole(from))
    end
    return found
end

-- Those that have waited for too long, the longest first. Lines are their names, and how many may be taken of each.
local function overdue(q, lines, many)
    local found = {}
    local function note(id, place, lane)
        local since = waits_since(q, id)
        if now - since > LONG and not left_to_others(q, id) then
            found[#found + 1] = {q = q, id = id, place = place, since = since, lane = lane}
        end
        return now - since > LONG
    end
    for _, id in ipairs(redis.call('LRANGE', q.base .. 'wait', -many, -1)) do
        note(id, '0')
    end
    for name, most in pairs(lines) do
        for _, some in ipairs(heads(q, name, math.min(most, many))) do
            for at = 1, #some, 2 do
                if not note(some[at], some[at + 1], string.match(name, '^unstuck:lane:(.*)$')) then
                    break -- nor have those behind it
                end
            end
        end
    end
    table.sort(found, function(one, other)
        return one.since < other.since
    end)
    return found
end

-- Whether jobs of a queue wait in any other order than that in which they came.
local function mixed(q)
    local first = redis.call('ZRANGE', q.base .. 'prioritized', 0, 0, 'WITHSCORES')[2]
    if not first then
        return false
    end
    local last = redis.call('ZRANGE', q.base .. 'prioritized', -1, -1, 'WITHSCORES')[2]
    return math.floor(first / SPAN) ~= math.floor(last / SPAN) or redis.call('EXISTS', q.base .. 'wait') == 1
end

-- What is to be taken, with those that have waited for too long where it is their turn. Where lanes have a limit, no more
-- jobs are taken of one than it has room for.
local function in_turn(q, some, lines, room)
    if not some[1] or not mixed(q) then
        return some
    end
    q.turn = as_number(redis.call('HGET', q.base .. 'unstuck:turns', 'taken')) or 0
    local many = math.floor((q.turn + #some) / EVERY)
    local old = many > 0 and overdue(q, lines, many) or {}
    if not old[1] then
        return some
    end
    local taken, made = {}, {}
    local function first_of(list)
        while list[1] and (taken[list[1].id] or room and list[1].lane and room[list[1].lane] == 0) do
            table.remove(list, 1)
        end
        return list[1]
    end
    for place = 1, #some do
        local one = (q.turn + place) % EVERY == 0 and first_of(old) or first_of(some)
        if not one then
            break
        end
        made[place], taken[one.id] = one, true
        if room and one.lane then
            room[one.lane] = room[one.lane] - 1
        end
    end
    return made
end

-- Remember how many were taken.
local function count_turns(q, many)
    if q.turn then
        redis.call('HSET', q.base .. 'unstuck:turns', 'taken', whole((q.turn + many) % EVERY))
    end
end
