-- take: hand out tokens of a bucket that is not closed; each returns one interval after it was taken. Then how things
-- stand: how many are out, when the first of them returns, and for how long the bucket is closed. With none wanted, only that.
local tokens = store .. 'bucket.' .. ask.bucket
local closed_for = math.max(0, tonumber(redis.call('HGET', store .. 'closed', ask.bucket) or '0') - now)
local granted, stamp = 0, '0'
if closed_for == 0 and ask.wanted > 0 then
    redis.call('ZREMRANGEBYSCORE', tokens, '-inf', whole(now))
    local free_at = whole(now + ask.interval)
    -- Those that were taken before the clock was put back return one interval from now.
    for _, token in ipairs(redis.call('ZRANGEBYSCORE', tokens, '(' .. whole(now + ask.latest), '+inf')) do
        redis.call('ZADD', tokens, free_at, token)
    end
    granted = math.max(0, math.min(ask.wanted, ask.capacity - redis.call('ZCARD', tokens)))
    if granted > 0 then
        local number = numbers(granted)
        for token = 0, granted - 1 do
            redis.call('ZADD', tokens, free_at, whole(number + token))
        end
        redis.call('PEXPIRE', tokens, whole(ask.interval + 1000))
        stamp = free_at
    end
end
local from = '(' .. whole(now)
local first = redis.call('ZRANGEBYSCORE', tokens, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {granted, stamp, redis.call('ZCOUNT', tokens, from, '+inf'), whole(first[2] and first[2] - now or 0), whole(closed_for)}
