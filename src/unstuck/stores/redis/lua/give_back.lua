-- give_back: return tokens of one grant that were not used; then grant none of the bucket for so long, if that is asked
-- for. A longer closure stays.
local tokens = store .. 'bucket.' .. ask.bucket
if ask.count > 0 then
    local stamp = whole(ask.stamp)
    for _, token in ipairs(redis.call('ZRANGEBYSCORE', tokens, stamp, stamp, 'LIMIT', 0, ask.count)) do
        redis.call('ZREM', tokens, token)
    end
end
if ask.close_for > 0 then
    local closed = tonumber(redis.call('HGET', store .. 'closed', ask.bucket) or '0')
    redis.call('HSET', store .. 'closed', ask.bucket, whole(math.max(closed, now + ask.close_for)))
end
return 1
