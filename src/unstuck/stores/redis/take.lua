-- take: hand out tokens of a bucket; each returns one interval after it was taken.
local tokens = store .. 'bucket.' .. ask.bucket
local closed = tonumber(redis.call('HGET', store .. 'closed', ask.bucket) or '0')
if closed > now then
    return {0, whole(closed - now), '0'}
end
redis.call('ZREMRANGEBYSCORE', tokens, '-inf', whole(now))
local free_at = whole(now + ask.interval)
local first = redis.call('ZRANGE', tokens, 0, 0, 'WITHSCORES')
local granted = math.max(0, math.min(ask.wanted, ask.capacity - redis.call('ZCARD', tokens)))
if granted > 0 then
    local number = numbers(granted)
    for token = 0, granted - 1 do
        redis.call('ZADD', tokens, free_at, whole(number + token))
    end
    redis.call('PEXPIRE', tokens, whole(ask.interval + 1000))
end
local wait = granted == ask.wanted and 0 or first[2] and first[2] - now or ask.interval
return {granted, whole(wait), free_at}
