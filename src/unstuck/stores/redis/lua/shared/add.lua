-- add: store new jobs. One is position of queue, id, BullMQ's priority, delay, instant, digest, again, lane, fields, task,
-- how it is spaced, and when it expires: an instant, or milliseconds from now.
-- Answers for each whether it was created, and whether its content is the same as that of the job that has its id; and the id of
-- the job that stands instead of a spaced one.
local KEPT = {'fence', 'told', 'settled'} -- when a job is started over; "told" has the numbers of its events

-- What is kept of a finished job that is to be started over; nil if it is not to be.
local function start_over(q, id, again)
    local finished = state(q, id)
    if not again or finished == 'pending' or finished == 'processing' then
        return nil
    end
    local key, kept = q.base .. id, {}
    local values = redis.call('HMGET', key, unpack(KEPT))
    for place, name in ipairs(KEPT) do
        if values[place] then
            kept[#kept + 1] = name
            kept[#kept + 1] = values[place]
        end
    end
    redis.call('ZREM', q.base .. finished, id)
    redis.call('SREM', q.base .. 'unstuck:cancelled', id)
    redis.call('DEL', key)
    return kept
end

-- Take away what an earlier job of a new one's id has left when its data was lost: by such an entry it would run twice.
local function bury(q, id)
    if not redis.call('ZSCORE', q.base .. 'unstuck:all', id) then
        return
    end
    for _, set in ipairs({'completed', 'failed', 'prioritized', 'delayed', 'waiting-children'}) do
        redis.call('ZREM', q.base .. set, id)
    end
    for _, list in ipairs({'wait', 'paused', 'active'}) do
        redis.call('LREM', q.base .. list, 0, id)
    end
    redis.call('SREM', q.base .. 'unstuck:cancelled', id)
    redis.call('DEL', q.base .. id, q.base .. id .. ':lock')
end

-- Put at the end of the line a job that is due now.
local function stand_last(q, id, priority, lane)
    q.ready = true
    local counter = q.counter and q.counter + 1
    q.counter = counter
    local score = priority * SPAN + (counter or redis.call('INCR', q.base .. 'pc'))
    gather(q, 'stand', whole(score), id)
    if q.laned then
        index(q, id, lane, score)
    end
end

local function add(job, number, routine, plain)
    local q, id, priority, lane = queue(job[1]), job[2], job[3], job[8]
    local key, kept = q.base .. id, nil
    if not plain and redis.call('EXISTS', key) == 1 and not gone(q, id) then
        kept = start_over(q, id, job[7])
        if not kept then
            return {0, (redis.call('HGET', key, 'digest') or nil) == job[6] and 1 or 0}
        end
    elseif job[6] then -- only a job with a key can have been there before
        bury(q, id)
    end
    local run_at = (job[5] or now) + job[4]
    redis.call('HSET', key, 'timestamp', time, 'delay', whole(math.max(0, run_at - now)), 'priority', whole(priority),
        unpack(job[9]))
    if kept and kept[1] then
        redis.call('HSET', key, unpack(kept))
    end
    gather(q, 'all', whole(number), id) -- one that is started over is as new as the others
    publish(q, 'added', id, 'name', job[10])
    if lane then
        use_lanes(q)
    end
    local expires_at = job[12] or job[13] and now + job[13]
    if expires_at then
        redis.call('HSET', key, 'expires_at', whole(expires_at))
        watch(q, id, expires_at)
    end
    if run_at > now then
        postpone(q, id, run_at)
        publish(q, 'delayed', id, 'delay', whole(run_at))
    else
        if job[5] then
            flush() -- its position is found among those that are there
            redis.call('HSET', key, 'run_at', whole(run_at))
            stand(q, id, priority, run_at, lane)
        else
            stand_last(q, id, priority, lane)
        end
        publish(q, 'waiting', id)
    end
    if routine then
        log_event(q, id, 'enqueued', '{}')
    end
    return {1, 1}
end

-- Whether none of the jobs is there yet, nor twice among them, and all are due by the delays that they have. Then what
-- would be asked for each is asked once: whether it is there, and the counters of their positions.
local function all_plain(jobs)
    local keys, seen = {}, {}
    for place, job in ipairs(jobs) do
        local key = queue(job[1]).base .. job[2]
        if seen[key] or job[5] or job[11] then
            return false
        end
        seen[key], keys[place] = true, key
    end
    for first = 1, #keys, 1000 do
        if redis.call('EXISTS', unpack(keys, first, math.min(#keys, first + 999))) > 0 then
            return false
        end
    end
    return true
end

local function add_all(jobs, routine)
    local first, answers, plain, many = numbers(#jobs), {}, all_plain(jobs), {}
    for _, job in ipairs(jobs) do
        local q = queue(job[1])
        many[q] = (many[q] or 0) + 1
    end
    for q, count in pairs(many) do
        redis.call('SADD', KEYS[2], q.name)
        q.counter = plain and redis.call('INCRBY', q.base .. 'pc', count) - count
    end
    for place, job in ipairs(jobs) do
        if job[11] then
            answers[place] = space(job, first + place - 1, function()
                return add(job, first + place - 1, routine)
            end)
        else
            answers[place] = add(job, first + place - 1, routine, plain)
        end
    end
    flush()
    return answers
end
