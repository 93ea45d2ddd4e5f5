-- heartbeat: record a worker, renew its leases, and name those that it holds in the store but did not name.
-- needs: hold
even_if_full()
local me = ask.worker
local function record()
    redis.call('ZADD', store .. 'seen', whole(now), me)
    redis.call('HSETNX', store .. 'since', me, whole(now))
    redis.call('HSET', store .. 'workers', me, ask.facts)
    for _, silent in ipairs(redis.call('ZRANGEBYSCORE', store .. 'seen', '-inf', '(' .. whole(now - ask.remember))) do
        redis.call('ZREM', store .. 'seen', silent)
        redis.call('HDEL', store .. 'since', silent)
        redis.call('HDEL', store .. 'workers', silent)
    end
end

if ask.facts then -- where queues are spread over a cluster it is recorded by a step of its own
    record()
end

local function was_cancelled(q, id)
    return string.match(redis.call('HGET', q.base .. id, 'settled') or '', '^cancelled')
end

local verdicts, named = {}, {}
for place, beat in ipairs(ask.beats) do
    local q, id, fence = queue(beat[1]), beat[2], beat[3]
    local holds, facts = held(q, id, fence)
    named[q.place .. ' ' .. id .. ' ' .. whole(fence)] = true
    verdicts[place] = holds and 'held' or was_cancelled(q, id) and 'cancelled' or 'lost'
    if holds then
        hold(q, id, facts[FENCE], me, beat[4])
        redis.call('HSET', q.base .. id, 'heartbeat_at', time)
        gather(q, 'well', id)
        if beat[5] then
            redis.call('HSET', q.base .. id, 'progress', beat[5])
            publish(q, 'progress', id, 'data', beat[5])
        end
        if beat[6] then
            redis.call('HSET', q.base .. id, 'stage', beat[6])
        end
    end
end

flush()

local strangers = {}
for place in ipairs(ask.queues) do
    local q = queue(place)
    for _, id in ipairs(redis.call('ZRANGE', q.base .. 'unstuck:leases', 0, -1)) do
        local facts = redis.call('HMGET', q.base .. id, 'pb', 'fence', 'leased', 'ats')
        local fence = as_number(facts[2]) and whole(as_number(facts[2]))
        if facts[1] == me and fence and active(q)[id] and ours(facts[3], facts[4]) and not named[place .. ' ' .. id .. ' ' .. fence] then
            strangers[#strangers + 1] = {place, id, fence}
        end
    end
end
return {verdicts, strangers}
