-- age: move every time that a store keeps into the past. ARGV are milliseconds, what the keys of no queue begin with
-- (empty: leave them alone), and what those of each queue begin with. KEYS only name the server that has all of them.
local by, own = tonumber(ARGV[1]), ARGV[2]

local function whole(number)
    return string.format('%.0f', number)
end

local function shift_set(key, amount)
    local found = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for place = 1, #found, 2 do
        redis.call('ZADD', key, whole(found[place + 1] - amount), found[place])
    end
end

local function shift_hash(key)
    local found = redis.call('HGETALL', key)
    for place = 1, #found, 2 do
        redis.call('HSET', key, found[place], whole(found[place + 1] - by))
    end
end

local function shift_job(key)
    local times = {'timestamp', 'processedOn', 'finishedOn', 'run_at', 'heartbeat_at', 'error_at', 'expires_at'}
    for place, value in ipairs(redis.call('HMGET', key, unpack(times))) do
        if value then
            redis.call('HSET', key, times[place], whole(value - by))
        end
    end
    local left = redis.call('PTTL', key .. ':lock')
    if left > by then
        redis.call('PEXPIRE', key .. ':lock', whole(left - by))
    elseif left >= 0 then
        redis.call('DEL', key .. ':lock')
    end
end

for place = 3, #ARGV do
    local base = ARGV[place]
    for _, id in ipairs(redis.call('ZRANGE', base .. 'unstuck:all', 0, -1)) do
        shift_job(base .. id)
    end
    shift_set(base .. 'delayed', by * 4096)
    for _, set in ipairs({'completed', 'failed', 'unstuck:leases', 'unstuck:expires'}) do
        shift_set(base .. set, by)
    end
    for _, key in ipairs(redis.call('KEYS', base .. 'de:*')) do
        local left = redis.call('PTTL', key)
        if left > by then
            redis.call('PEXPIRE', key, whole(left - by))
        elseif left >= 0 then
            redis.call('DEL', key)
        end
    end
    local later = redis.call('ZSCORE', base .. 'marker', '1')
    if later then
        redis.call('ZADD', base .. 'marker', whole(later - by), '1')
    end
    local events = base .. 'unstuck:events'
    for _, text in ipairs(redis.call('ZRANGE', events, 0, -1)) do
        local number, at, rest = string.match(text, '^(%d+) (%d+) (.*)$')
        redis.call('ZREM', events, text)
        redis.call('ZADD', events, number, number .. ' ' .. whole(at - by) .. ' ' .. rest)
    end
end
if own == '' then
    return 1
end
shift_set(own .. 'seen', by)
for _, hash in ipairs({'since', 'closed', 'slots'}) do
    shift_hash(own .. hash)
end
for _, key in ipairs(redis.call('KEYS', own .. 'bucket.*')) do
    shift_set(key, by)
end
for _, key in ipairs(redis.call('KEYS', own .. 'records.*.ages')) do
    shift_set(key, by)
    local values = string.sub(key, 1, -6)
    local found = redis.call('HGETALL', values)
    for place = 1, #found, 2 do
        local version, at, value = string.match(found[place + 1], '^(%d+) (%d+) (.*)$')
        redis.call('HSET', values, found[place], version .. ' ' .. whole(at - by) .. ' ' .. value)
    end
end
return 1
