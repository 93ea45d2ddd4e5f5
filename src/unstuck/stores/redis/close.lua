-- close: grant no token of a bucket until then. A longer closure stays.
local closed = tonumber(redis.call('HGET', store .. 'closed', ask.bucket) or '0')
redis.call('HSET', store .. 'closed', ask.bucket, whole(math.max(closed, now + ask.closed_for)))
return 1
