-- follow: log what BullMQ's workers finished, from BullMQ's own events. Ours are marked, and are logged already.
local AT_ONCE = 1000

local function note(q, id, event, why)
    if gone(q, id) then
        return
    end
    tally(q, event, 1)
    if event == 'failed' then
        local message = '"message":' .. cjson.encode(string.sub(why or '', 1, 500)) .. '}'
        log_event(q, id, 'failed', '{' .. message)
        log_event(q, id, 'alert', '{"alert":"dead_letter",' .. message)
    elseif ask.routine then
        log_event(q, id, 'completed', '{}')
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
                local event = {}
                for place = 1, #entry[2], 2 do
                    event[entry[2][place]] = entry[2][place + 1]
                end
                if not event.by and (event.event == 'completed' or event.event == 'failed') then
                    note(q, event.jobId, event.event, event.failedReason)
                end
            end
        until #some < AT_ONCE
    else
        local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
        at = last and last[1] or '0-0'
    end
    redis.call('HSET', key, 'at', at, 'others', others)
end
