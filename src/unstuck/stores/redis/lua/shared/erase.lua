-- erase: remove a finished job with everything that belongs to it. A parent that waited only for it runs.
local function erase(q, id, set)
    for number in string.gmatch(redis.call('HGET', q.base .. id, 'told') or '', '%d+') do
        redis.call('ZREMRANGEBYSCORE', q.base .. 'unstuck:events', number, number)
    end
    redis.call('ZREM', q.base .. set, id)
    redis.call('ZREM', q.base .. 'unstuck:all', id)
    redis.call('SREM', q.base .. 'unstuck:cancelled', id)
    local key = q.base .. id
    disown(key)
    redis.call('DEL', key, key .. ':lock', key .. ':logs', key .. ':dependencies', key .. ':processed', key .. ':failed',
        key .. ':unsuccessful')
    publish(q, 'removed', id, 'prev', set)
end
