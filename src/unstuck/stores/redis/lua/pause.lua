-- pause: stop leasing from a queue. A second pause keeps the first one's time and takes the new reason.
-- needs: pause
local q = queue(1)
redis.call('SADD', KEYS[2], q.name)
pause(q, ask.why)
return 1
