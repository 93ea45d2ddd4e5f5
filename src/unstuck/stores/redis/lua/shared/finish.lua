-- finish: put a job among the finished ones of its kind, notify its parent, bring the job that was kept for its end, and keep
-- only as many as its options allow.
local function trim(q, id, set, keep)
    if keep == true or keep == 0 or (type(keep) == 'table' and keep.count == 0) then
        erase(q, id, set)
        return
    end
    local count = type(keep) == 'number' and keep or type(keep) == 'table' and keep.count
    local age = type(keep) == 'table' and keep.age
    local old = {}
    if age then
        old = redis.call('ZRANGEBYSCORE', q.base .. set, '-inf', whole(now - age * 1000), 'LIMIT', 0, 1000)
    end
    if type(count) == 'number' then
        for _, other in ipairs(redis.call('ZREVRANGE', q.base .. set, count, count + 999)) do
            old[#old + 1] = other
        end
    end
    for _, other in ipairs(old) do
        erase(q, other, set)
    end
end

-- Its hash has finishedOn already. That it may be tied to others, or be removed, must be looked up.
local function finish(q, id, set, tied)
    gather(q, set, time, id)
    if not tied then
        return
    end
    local parent, kind, options = unpack(redis.call('HMGET', q.base .. id, 'parentKey', 'deid', 'opts'))
    if parent then
        report(q, id, set)
    end
    if kind then -- it was the one job of its kind
        local key = q.base .. 'de:' .. kind
        if redis.call('GET', key) == id and redis.call('PTTL', key) < 0 then
            redis.call('DEL', key)
        end
        bring_kept(q, kind)
    end
    if options and string.find(options, 'removeOn', 1, true) then
        flush()
        local read, opts = pcall(cjson.decode, options)
        local keep = read and opts[set == 'completed' and 'removeOnComplete' or 'removeOnFail']
        if keep then
            trim(q, id, set, keep)
        end
    end
end
