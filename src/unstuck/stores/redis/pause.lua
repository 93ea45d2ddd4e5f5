-- pause: stop leasing from a queue. A second pause keeps the first one's time and takes the new reason.
local q = queue(1)
redis.call('HSET', q.base .. 'meta', 'paused', 1)
redis.call('HSETNX', q.base .. 'unstuck:pause', 'at', whole(now))
redis.call('HSET', q.base .. 'unstuck:pause', 'why', ask.why)
redis.call('DEL', q.base .. 'marker')
redis.call('SADD', KEYS[2], q.name)
redis.call('XADD', q.base .. 'events', 'MAXLEN', '~', q.kept, '*', 'event', 'paused')
tell(q, nil, 'paused', '{"why":' .. cjson.encode(ask.why) .. '}')
return 1
