-- follow: tell of what workers of BullMQ's finished, as its own events say it. Ours are marked, and were told.
local AT_ONCE = 1000

local function note(q, id, event, why)
    if gone(q, id) then
        return
    end
    tally(q, event, 1)
    if event == 'failed' then
        local said = '"message":' .. cjson.encode(string.sub(why or '', 1, 500)) .. '}'
        tell(q, id, 'failed', '{' .. said)
        tell(q, id, 'alert', '{"alert":"dead_letter",' .. said)
    elseif ask.routine then
        tell(q, id, 'completed', '{}')
    end
end

-- Their workers leave a sign for as long as they look for stalled jobs: without it there is nothing to read.
local function follow(q)
    local key, stream = q.base .. 'unstuck:followed', q.base .. 'events'
    local facts = redis.call('HMGET', key, 'at', 'others')
    local others = redis.call('EXISTS', q.base .. 'stalled-check')
    local at = facts[1]
    if at and (others == 1 or facts[2] == '1') then
        repeat
            local some = redis.call('XRANGE', stream, '(' .. at, '+', 'COUNT', AT_ONCE)
            for _, entry in ipairs(some) do
                at = entry[1]
                local said = {}
                for place = 1, #entry[2], 2 do
                    said[entry[2][place]] = entry[2][place + 1]
                end
                if not said.by and (said.event == 'completed' or said.event == 'failed') then
                    note(q, said.jobId, said.event, said.failedReason)
                end
            end
        until #some < AT_ONCE
    else
        local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
        at = last and last[1] or '0-0'
    end
    redis.call('HSET', key, 'at', at, 'others', others)
end
