-- kept: records of a kind behind a name, with their versions, times and values.
local values = store .. 'records.' .. ask.kind
local found = {}
for at, name in ipairs(redis.call('ZRANGEBYLEX', values .. '.names', '(' .. ask.after, '+', 'LIMIT', 0, ask.limit)) do
    found[at] = {name, redis.call('HGET', values, name)}
end
return found
