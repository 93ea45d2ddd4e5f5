-- iterate: have a job scheduler of BullMQ's go on. The caller that takes the job of its present iteration adds the next one, which
-- becomes the present one in the same step: so there is one, also if that job is taken again. The slot of an interval is found
-- here. That of a cron pattern is not: the caller is asked for it, and answers in ask.slots, 0 if there is none.
local function next_slot(last, every, offset)
    local slot = last + every
    if slot < now then -- some were missed
        slot = math.floor(now / every) * every + offset
        if slot <= now then
            slot = slot + every
        end
    end
    return math.floor(slot)
end

-- What is to be added behind a job, nil if nothing is. Without a slot it has to be asked for.
local function iteration(q, id, scheduler, options)
    local last = scheduler and tonumber(redis.call('ZSCORE', q.base .. 'repeat', scheduler))
    if not last or id ~= 'repeat:' .. scheduler .. ':' .. whole(last) then
        return nil -- it is over, or another job is the present one
    end
    local read, opts = pcall(cjson.decode, options or '')
    local plan = read and type(opts) == 'table' and opts['repeat']
    if type(plan) ~= 'table' then
        return nil
    end
    local count = (tonumber(plan.count) or 0) + 1
    if count > (tonumber(plan.limit) or math.huge) or now > (tonumber(plan.endDate) or math.huge) then
        return nil
    end
    local facts = redis.call('HMGET', q.base .. 'repeat:' .. scheduler, 'name', 'data', 'every', 'offset')
    if not facts[1] then
        return nil
    end
    local found = {scheduler = scheduler, opts = opts, count = count, name = facts[1], data = facts[2] or '{}'}
    local every = tonumber(facts[3]) or tonumber(plan.every)
    if every and every > 0 then
        found.slot = next_slot(last, every, tonumber(facts[4]) or tonumber(plan.offset) or 0)
    else
        found.slot = ask.slots and ask.slots[id]
        found.by_pattern = true
    end
    return found.slot ~= 0 and found or nil
end

local function iterate(q, found)
    local opts, id = found.opts, 'repeat:' .. found.scheduler .. ':' .. whole(found.slot)
    if redis.call('EXISTS', q.base .. id) == 1 then
        publish(q, 'duplicated', id)
        return
    end
    redis.call('ZADD', q.base .. 'repeat', whole(found.slot), found.scheduler)
    redis.call('HINCRBY', q.base .. 'repeat:' .. found.scheduler, 'ic', 1)
    redis.call('INCR', q.base .. 'id')
    opts.jobId, opts.timestamp, opts.delay = id, now, math.max(0, found.slot - now)
    opts.prevMillis = found.by_pattern and found.slot or nil
    opts['repeat'].count = found.count
    add_theirs(q, id, found.name, found.data, opts, {'rjk', found.scheduler})
end
