-- queue: the time, numbers, and what every step knows about a queue.
-- KEYS are this store's counter, its register of queues, and the meta key of each queue at hand, by which a step
-- names queues (1 is the first). All other keys of a queue begin with the same words as its meta key does.
local ask = cmsgpack.unpack(ARGV[1])
local clock = redis.call('TIME')
local micro = clock[1] * 1000000 + clock[2]
local now = math.floor(micro / 1000)
local time = string.format('%.0f', now)
local store = string.sub(KEYS[1], 1, -7) -- without its last word, "number"
local EVENTS_KEPT = '10000' -- as BullMQ does unless the queue's meta says otherwise

-- A number as text. Where many jobs have the same it is made once: this is slow, and so is a number in a command.
local texts = {}
local function whole(number)
    local text = texts[number]
    if not text then
        text = string.format('%.0f', number)
        texts[number] = text
    end
    return text
end

-- A number that a hash has as text. Nil for what is none, or none that is exact: somebody may have damaged it.
local EXACT = 9007199254740992
local function as_number(text)
    local number = tonumber(text)
    return number and number > -EXACT and number < EXACT and number or nil
end

-- A full server refuses what needs memory, but not in a step that has begun to write: what works jobs off must go on.
local function even_if_full()
    redis.call('DEL', store .. 'room')
end

-- Numbers that grow for ever, also when the clock goes back: for jobs in the order they came, and for events.
local function numbers(count)
    local first = math.max(micro, tonumber(redis.call('GET', KEYS[1]) or '0') + 1)
    redis.call('SET', KEYS[1], whole(first + count - 1))
    return first
end

local queues = {} -- by the words that their keys begin with
local placed = {} -- by their positions among the keys

local function queue_at(base, place)
    local q = queues[base]
    if q then
        return q
    end
    local meta = redis.call('HMGET', base .. 'meta', 'paused', 'opts.maxLenEvents', 'concurrency', 'max', 'duration')
    q = {
        place = place,
        base = base,
        name = place and ask.queues[place],
        paused = meta[1] and meta[1] ~= '0',
        kept = tonumber(meta[2]) and meta[2] or EVENTS_KEPT,
        concurrency = tonumber(meta[3]),
        max = tonumber(meta[4]),
        duration = tonumber(meta[5]),
        laned = redis.call('EXISTS', base .. 'unstuck:laned') == 1,
    }
    queues[base] = q
    return q
end

local function queue(place)
    local q = placed[place]
    if not q then
        q = queue_at(string.sub(KEYS[place + 2], 1, -5), place)
        placed[place] = q
    end
    return q
end

-- What runs, as a set: looked up often in one step, and a list is slow to search.
local function active(q)
    if not q.active then
        q.active = {}
        for _, id in ipairs(redis.call('LRANGE', q.base .. 'active', 0, -1)) do
            q.active[id] = true
        end
    end
    return q.active
end

-- Whether there is no job behind an entry: what a job is made of is its task's name and its data. One that has lost only its
-- name is there, and is put aside like any other that cannot be read. This is the only place that decides it.
local function gone(q, id)
    local key = q.base .. id
    return redis.call('HEXISTS', key, 'name') == 0 and redis.call('HEXISTS', key, 'data') == 0
end

-- Publish an event of BullMQ's. Events that are too old are removed once a step.
local function publish(q, event, id, ...)
    if q.trimmed then
        redis.call('XADD', q.base .. 'events', '*', 'event', event, 'jobId', id, ...)
    else
        redis.call('XADD', q.base .. 'events', 'MAXLEN', '~', q.kept, '*', 'event', event, 'jobId', id, ...)
        q.trimmed = true
    end
end

-- Write an event of ours. It is in one line with all others of its queue, and its job knows its number.
local function log_event(q, id, type, details)
    local facts = id and redis.call('HMGET', q.base .. id, 'name', 'told')
    if id and not facts[1] and gone(q, id) then
        return -- the job was removed in the same step
    end
    local number = whole(numbers(1))
    local text = '[' .. cjson.encode(type) .. ',' .. (id and cjson.encode(id) or 'null') .. ',' .. details .. ']'
    redis.call('ZADD', q.base .. 'unstuck:events', number, number .. ' ' .. whole(now) .. ' ' .. text)
    if id then
        redis.call('HSET', q.base .. id, 'told', (facts[2] and facts[2] .. ' ' or '') .. number)
    end
end

local function tally(q, name, count)
    redis.call('HINCRBY', q.base .. 'unstuck:counters', name, count)
end

-- Changes of one key that many jobs of a step make are gathered and made together: fewer commands are quicker. They are
-- made in this order: should a step fail half-way, a job that moves is in two places, of which one leads on, not in none.
local GATHERED = {
    {'completed', 'ZADD', 'completed'}, {'failed', 'ZADD', 'failed'}, {'all', 'ZADD', 'unstuck:all'},
    {'stand', 'ZADD', 'prioritized'}, {'lease', 'ZADD', 'unstuck:leases'}, {'start', 'LPUSH', 'active'},
    {'leave', 'ZREM', 'prioritized'}, {'stop'}, {'unlease', 'ZREM', 'unstuck:leases'}, {'well', 'SREM', 'stalled'},
    {'unlock', 'DEL'},
}

local function gather(q, what, one, two)
    local words = q[what]
    if not words then
        words = {}
        q[what] = words
    end
    words[#words + 1] = one
    words[#words + 1] = two
end

-- Take jobs off the list of those that run. Those that began first stand last: what is behind the first that goes is
-- written again if it is not much more than what goes.
local function stop_all(q)
    local gone, key = {}, q.base .. 'active'
    for _, id in ipairs(q.stop) do
        gone[id] = true
    end
    local running, first, stay = redis.call('LRANGE', key, 0, -1), nil, {}
    for at, id in ipairs(running) do
        if gone[id] then
            first = first or at
        elseif first then
            stay[#stay + 1] = id
        end
    end
    if #stay > 4 * #q.stop then
        for _, id in ipairs(q.stop) do
            redis.call('LREM', key, -1, id)
        end
    elseif first then
        redis.call('LTRIM', key, 0, first - 2 - #running) -- counted from the end, or the first would mean all
        for at = 1, #stay, 1000 do
            redis.call('RPUSH', key, unpack(stay, at, math.min(#stay, at + 999)))
        end
    end
end

local function flush()
    for _, q in pairs(queues) do
        for _, how in ipairs(GATHERED) do
            local what, command, key = how[1], how[2], how[3]
            local words = q[what]
            if words and not command then
                stop_all(q)
            elseif words then
                for first = 1, #words, 1000 do
                    local last = math.min(#words, first + 999)
                    if key then
                        redis.call(command, q.base .. key, unpack(words, first, last))
                    else
                        redis.call(command, unpack(words, first, last))
                    end
                end
            end
            q[what] = nil
        end
    end
end

-- Wake up waiting workers for what became ready, or will: a marker for each queue, at the end of a step.
local function wake_up()
    for _, q in pairs(queues) do
        if not q.paused and q.ready then
            redis.call('ZADD', q.base .. 'marker', 0, '0')
        end
        if not q.paused and q.later then
            local head = redis.call('ZRANGE', q.base .. 'delayed', 0, 0, 'WITHSCORES')
            if head[1] then
                redis.call('ZADD', q.base .. 'marker', whole(math.floor(head[2] / 4096)), '1')
            end
        end
    end
end

local function state(q, id)
    for _, set in ipairs({'completed', 'failed'}) do
        if redis.call('ZSCORE', q.base .. set, id) then
            return set
        end
    end
    return active(q)[id] and 'processing' or 'pending'
end

-- A hash with some fields replaced: a reader takes the last value of each name.
local function also(row, ...)
    local count = #row
    for at, word in ipairs({...}) do
        row[count + at] = word
    end
    return row
end

-- A job as it is now, for the caller: all of its hash, and the end of its lease. That of a worker of BullMQ's is its
-- lock, which it renews. For one that is gone there is nothing to log.
local function row(q, id, status)
    status = status or state(q, id)
    if gone(q, id) then
        return {q.place, id, status, {}}
    end
    local facts = redis.call('HGETALL', q.base .. id)
    if status ~= 'processing' then
        return {q.place, id, status, facts}
    end
    local ends = redis.call('ZSCORE', q.base .. 'unstuck:leases', id)
    if ends then
        return {q.place, id, status, also(facts, 'lease_until', ends)}
    end
    local left = redis.call('PTTL', q.base .. id .. ':lock')
    return {q.place, id, status, left > 0 and also(facts, 'locked_until', whole(now + left)) or facts}
end
