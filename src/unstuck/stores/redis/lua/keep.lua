-- keep: make a record, or change or delete it if it has this version. Then the record as it is.
local values = store .. 'records.' .. ask.kind
local found = redis.call('HGET', values, ask.record)
local version = found and string.match(found, '^%d+') or '0'
if version ~= whole(ask.version) then
    return found
end
if ask.value then
    version = found and ask.version + 1 or ask.first
    found = whole(version) .. ' ' .. time .. ' ' .. ask.value
    redis.call('HSET', values, ask.record, found)
    redis.call('ZADD', values .. '.names', 0, ask.record)
    redis.call('ZADD', values .. '.ages', time, ask.record)
    return found
end
redis.call('HDEL', values, ask.record)
redis.call('ZREM', values .. '.names', ask.record)
redis.call('ZREM', values .. '.ages', ask.record)
return false
