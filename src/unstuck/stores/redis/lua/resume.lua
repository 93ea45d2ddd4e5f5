-- resume: lift a pause, a halt or both, and wake workers up for what has gathered.
local q = queue(1)
if not q.paused then
    return 0
end
q.paused, q.later = false, true
q.ready = redis.call('EXISTS', q.base .. 'wait', q.base .. 'prioritized') > 0
redis.call('HDEL', q.base .. 'meta', 'paused')
redis.call('DEL', q.base .. 'unstuck:pause')
redis.call('XADD', q.base .. 'events', 'MAXLEN', '~', q.kept, '*', 'event', 'resumed')
log_event(q, nil, 'resumed', '{}')
wake_up()
return 1
