-- spacing: debounced and throttled jobs, by BullMQ's own deduplication: the key "de:" names the job that stands for a kind of
-- job, and ends with the interval. It may have none: then the job stands until it is finished.

-- Take the job that stands out of line, if nobody ever leased it; then it can be replaced.
local function withdraw(q, id)
    local facts = redis.call('HMGET', q.base .. id, 'fence', 'ats', 'lane')
    return not gone(q, id) and (facts[1] or '0') == '0' and (facts[2] or '0') == '0' and leave(q, id, facts[3])
end

-- Give a job that waits, and was taken out of line, what a new one has. It keeps its id and when it was created.
local function instead(q, id, job, number)
    local key = q.base .. id
    local was = redis.call('HMGET', key, 'timestamp', 'told')
    local run_at = now + job[4]
    redis.call('DEL', key)
    redis.call('HSET', key, 'timestamp', was[1] or time, 'delay', whole(job[4]), 'run_at', whole(run_at), 'priority',
        whole(job[3]), unpack(job[9]))
    if was[2] then
        redis.call('HSET', key, 'told', was[2])
    end
    redis.call('ZADD', q.base .. 'unstuck:all', 'NX', whole(number), id)
    if job[8] then
        use_lanes(q)
    end
    postpone(q, id, run_at)
    publish(q, 'delayed', id, 'delay', whole(run_at))
end

-- Job[11] is its kind, the length of the interval, and whether it is debounced. "add_it" adds it as any other.
local function space(job, number, add_it)
    local q, kind, length, replaces = queue(job[1]), job[11][1], whole(job[11][2]), job[11][3]
    local key = q.base .. 'de:' .. kind
    local id = redis.call('GET', key)
    if id and gone(q, id) and redis.call('PTTL', key) == -1 then
        id = false -- it would stand for ever
    end
    local waits = false
    if id and not gone(q, job[2]) then
        id = false -- enqueued before, and the answer was lost: adding it again changes nothing, also not what was called later
    end
    if id and replaces then
        flush() -- what was added in this step must be found in its place
        waits = withdraw(q, id)
    end
    if id and (waits or not replaces) then
        local content = redis.call('HGET', q.base .. id, 'digest')
        if waits then
            instead(q, id, job, number)
            redis.call('SET', key, id, 'PX', length)
        end
        publish(q, 'deduplicated', id, 'deduplicationId', kind, 'deduplicatedJobId', job[2])
        return {0, (not content or content == job[6]) and 1 or 0, id}
    end
    local answer = add_it()
    if answer[1] == 1 then
        redis.call('DEL', q.base .. 'dn:' .. kind) -- what was to follow the job that stood is older than this call
        redis.call('SET', key, job[2], 'PX', length)
    end
    return answer
end
