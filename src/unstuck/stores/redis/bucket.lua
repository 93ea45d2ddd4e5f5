-- bucket: how many tokens are out, when the first of them returns, and for how long the bucket is closed.
local tokens = store .. 'bucket.' .. ask.bucket
local from = '(' .. whole(now)
local first = redis.call('ZRANGEBYSCORE', tokens, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local closed = tonumber(redis.call('HGET', store .. 'closed', ask.bucket) or '0')
return {redis.call('ZCOUNT', tokens, from, '+inf'), whole(first[2] and first[2] - now or 0), whole(math.max(0, closed - now))}
