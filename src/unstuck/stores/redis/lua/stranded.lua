-- stranded: how one queue stands, and what nobody will come back for: kinds of it, each with its number and a few ids.
-- ask.ids are jobs whose keys were seen, ask.locked those that have a lock.
local FEW, LATE = 5, 60000
local q, kinds, places = queue(1), {}, {}

local function note(kind, id)
    local of = kinds[kind] or {kind, 0, {}}
    kinds[kind] = of
    of[2] = of[2] + 1
    if #of[3] < FEW then
        of[3][#of[3] + 1] = id
    end
end

local LISTS = {wait = 'LRANGE', paused = 'LRANGE', active = 'LRANGE', prioritized = 'ZRANGE', delayed = 'ZRANGE',
    completed = 'ZRANGE', failed = 'ZRANGE', ['waiting-children'] = 'ZRANGE'}
local complete = true -- whether every entry of every list was looked at
for list, command in pairs(LISTS) do
    local some = redis.call(command, q.base .. list, 0, ask.most - 1)
    complete = complete and #some < ask.most
    for _, id in ipairs(some) do
        places[id] = list
        if gone(q, id) then
            note('missing', id)
        end
    end
end
for id in pairs(active(q)) do
    local left = redis.call('PTTL', q.base .. id .. ':lock')
    if left == -1 then
        note('held', id)
    elseif left == -2 and not redis.call('ZSCORE', q.base .. 'unstuck:leases', id) and not gone(q, id) then
        note('stalled', id)
    end
end
for _, id in ipairs(ask.locked) do
    local left = redis.call('PTTL', q.base .. id .. ':lock')
    if not active(q)[id] and left ~= -2 then
        note(left == -1 and 'locked for ever' or 'orphaned', id)
    end
end
for _, id in ipairs(complete and ask.ids or {}) do
    if not places[id] and not gone(q, id) then
        note('unlisted', id)
    end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', q.base .. 'delayed', 0, whole((now - LATE) * 4096), 'LIMIT', 0, ask.most)) do
    note('overdue', id)
end
for _, id in ipairs(redis.call('LRANGE', q.base .. 'paused', 0, ask.most - 1)) do
    note('old', id)
end
for _, id in ipairs(redis.call('ZRANGE', q.base .. 'waiting-children', 0, ask.most - 1)) do
    for _, child in ipairs(redis.call('SRANDMEMBER', q.base .. id .. ':dependencies', 100)) do
        local base, other = string.match(child, '^(.*:)([^:]+)$')
        if base == q.base and (places[other] == 'failed' or gone(q, other)) then
            note('childless', id)
            break
        end
    end
end

local found = {}
for _, of in pairs(kinds) do
    found[#found + 1] = of
end
local count = {redis.call('LLEN', q.base .. 'wait') + redis.call('ZCARD', q.base .. 'prioritized'),
    redis.call('ZCARD', q.base .. 'delayed'), redis.call('LLEN', q.base .. 'active'), redis.call('ZCARD', q.base .. 'failed')}
local full = q.concurrency and count[3] >= q.concurrency and q.concurrency or false
local version = redis.call('HGET', q.base .. 'meta', 'version')
return {count, q.paused and 1 or 0, full, version, redis.call('EXISTS', q.base .. 'stalled-check'), found}
