-- add: store one new job. It is place of queue, id, BullMQ's priority, delay, instant, digest, again, lane, fields.
-- Answers whether it was created, and whether its content is the same as that of the job that has its id.
local KEPT = {'fence', 'told', 'settled', 'settled_fence', 'born'} -- when a job is started over

local function add(job, number, routine)
    local q, id, priority, lane = queue(job[1]), job[2], job[3], job[8]
    local key, kept = q.base .. id, {}
    if redis.call('EXISTS', key) == 1 then
        local finished = state(q, id)
        if not job[7] or finished == 'pending' or finished == 'processing' then
            local digest = redis.call('HGET', key, 'digest') or nil
            return {0, digest == job[6] and 1 or 0}
        end
        local values = redis.call('HMGET', key, unpack(KEPT))
        for place, name in ipairs(KEPT) do
            if values[place] then
                kept[#kept + 1] = name
                kept[#kept + 1] = values[place]
                number = name == 'born' and values[place] or number
            end
        end
        redis.call('ZREM', q.base .. finished, id)
        redis.call('SREM', q.base .. 'unstuck:cancelled', id)
        redis.call('DEL', key)
    end
    local run_at = (job[5] or now) + job[4]
    redis.call('HSET', key, 'timestamp', whole(now), 'delay', whole(math.max(0, run_at - now)), 'run_at', whole(run_at),
        'priority', priority, 'born', type(number) == 'string' and number or whole(number), unpack(job[9]))
    if kept[1] then
        redis.call('HSET', key, unpack(kept))
    end
    redis.call('ZADD', q.base .. 'unstuck:all', type(number) == 'string' and number or whole(number), id)
    redis.call('SADD', KEYS[2], q.name)
    say(q, 'added', id, 'name', job[10])
    if lane then
        use_lanes(q)
    end
    if run_at > now then
        postpone(q, id, run_at)
        say(q, 'delayed', id, 'delay', whole(run_at))
    elseif job[5] then
        stand(q, id, priority, run_at, lane)
        say(q, 'waiting', id)
    else
        q.ready = true
        local score = priority * SPAN + redis.call('INCR', q.base .. 'pc')
        redis.call('ZADD', q.base .. 'prioritized', whole(score), id)
        if q.laned then
            index(q, id, lane, rank_at(priority, run_at), score)
        end
        say(q, 'waiting', id)
    end
    if routine then
        tell(q, id, 'enqueued', '{}')
    end
    return {1, 1}
end

local function add_all(jobs, routine)
    local first, answers = numbers(#jobs), {}
    for place, job in ipairs(jobs) do
        answers[place] = add(job, first + place - 1, routine)
    end
    return answers
end
