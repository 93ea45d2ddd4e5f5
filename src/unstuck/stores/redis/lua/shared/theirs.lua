-- theirs: store a job that BullMQ described, as its own scripts do, and put it in line. "more" are further fields of it.
local function add_theirs(q, id, name, data, opts, more)
    local delay, priority = math.max(0, tonumber(opts.delay) or 0), tonumber(opts.priority) or 0
    redis.call('HSET', q.base .. id, 'name', name, 'data', data, 'opts', cjson.encode(opts), 'timestamp', time, 'delay',
        whole(delay), 'priority', whole(priority), unpack(more))
    if type(opts.de) == 'table' and opts.de.id then
        redis.call('HSET', q.base .. id, 'deid', opts.de.id)
    end
    publish(q, 'added', id, 'name', name)
    if delay > 0 then
        postpone(q, id, now + delay)
        publish(q, 'delayed', id, 'delay', whole(now + delay))
    else
        stand(q, id, priority, now, nil, opts.lifo and 0 or nil)
        publish(q, 'waiting', id)
    end
end

-- What was to be added while the one job of its kind ran (keepLastIfActive), of which the last is kept: now it is added.
local function bring_kept(q, kind)
    local key = q.base .. 'dn:' .. kind
    local kept = redis.call('HMGET', key, 'name', 'data', 'opts', 'jid', 'pk', 'pd', 'pdk', 'rjk')
    local read, opts = pcall(cjson.decode, kept[3] or '')
    if not kept[1] or not read or type(opts) ~= 'table' then
        return
    end
    local number = whole(redis.call('INCR', q.base .. 'id')) -- as BullMQ counts, also when it has another id
    local id, more = kept[4] or number, {}
    for place, name in pairs({[5] = 'parentKey', [6] = 'parent', [8] = 'rjk'}) do
        if kept[place] then
            more[#more + 1] = name
            more[#more + 1] = kept[place]
        end
    end
    local alone = type(opts.de) == 'table' and opts.de or {}
    local ttl = not alone.keepLastIfActive and tonumber(alone.ttl) or 0
    if ttl > 0 then
        redis.call('SET', q.base .. 'de:' .. kind, id, 'PX', whole(ttl))
    else
        redis.call('SET', q.base .. 'de:' .. kind, id)
    end
    add_theirs(q, id, kept[1], kept[2] or '{}', opts, more)
    if kept[7] then
        redis.call('SADD', kept[7], q.base .. id)
    end
    redis.call('DEL', key)
end
