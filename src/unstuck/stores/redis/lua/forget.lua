-- forget: delete records that were last kept long ago, the oldest first.
local values = store .. 'records.' .. ask.kind
local old = redis.call('ZRANGEBYSCORE', values .. '.ages', '-inf', whole(now - ask.age), 'LIMIT', 0, ask.limit)
for _, name in ipairs(old) do
    redis.call('HDEL', values, name)
    redis.call('ZREM', values .. '.names', name)
    redis.call('ZREM', values .. '.ages', name)
end
return #old
