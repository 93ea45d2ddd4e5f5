-- measure: count finished jobs by the minute, as BullMQ's workers do that are asked for it: the newest minute is first.
local MINUTE, MINUTES = 60000, 20160 -- two weeks of them are kept

local function measure(q, set, many)
    local key = q.base .. 'metrics:' .. set
    local before = redis.call('HINCRBY', key, 'count', many) - many
    local last = redis.call('HMGET', key, 'prevTS', 'prevCount')
    if not last[1] then
        redis.call('HSET', key, 'prevTS', time, 'prevCount', 0)
        return
    end
    local passed = math.min(math.floor(now / MINUTE) - math.floor(last[1] / MINUTE), MINUTES)
    if passed > 0 then
        redis.call('LPUSH', key .. ':data', whole(before - (last[2] or 0)))
        for _ = 2, passed do
            redis.call('LPUSH', key .. ':data', 0)
        end
        redis.call('LTRIM', key .. ':data', 0, MINUTES - 1)
        redis.call('HSET', key, 'prevTS', time, 'prevCount', whole(before))
    end
end
