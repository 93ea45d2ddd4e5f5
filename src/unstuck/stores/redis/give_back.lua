-- give_back: return tokens of one grant that were not used.
local tokens = store .. 'bucket.' .. ask.bucket
local stamp = whole(ask.stamp)
for _, token in ipairs(redis.call('ZRANGEBYSCORE', tokens, stamp, stamp, 'LIMIT', 0, ask.count)) do
    redis.call('ZREM', tokens, token)
end
return 1
