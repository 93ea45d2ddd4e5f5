-- parent: do for BullMQ's flows what its own workers do when a child has finished or is removed: note what came of it with
-- the parent, and let the parent run when it waits for nothing more. The child's link decides what a failure means: fpof fails
-- the parent, cpof lets it run at once, idof and rdof take the child off its list, with or without a note.
local function run_parent(base, id)
    local q = queue_at(base)
    local facts = redis.call('HMGET', base .. id, 'priority', 'delay', 'lane')
    local delay = as_number(facts[2]) or 0
    redis.call('HSET', base .. id, 'run_at', whole(now + delay))
    if delay > 0 then
        postpone(q, id, now + delay)
        publish(q, 'delayed', id, 'delay', whole(now + delay))
    else
        stand(q, id, as_number(facts[1]) or 0, now, facts[3], 0) -- of those without a priority it is the next
        publish(q, 'waiting', id, 'prev', 'waiting-children')
    end
end

-- Whether it was there to be moved on: one that runs, or waits in line, goes on by itself.
local function wake_parent(base, id)
    if redis.call('ZREM', base .. 'waiting-children', id) == 1 and redis.call('EXISTS', base .. id) == 1 then
        run_parent(base, id)
    end
end

-- A parent that has to fail does so when it is taken next, without being run.
local function doom_parent(base, id, child)
    if redis.call('EXISTS', base .. id) == 0 or redis.call('ZSCORE', base .. 'failed', id) then
        return
    end
    redis.call('HSET', base .. id, 'defa', 'child ' .. child .. ' failed')
    if redis.call('ZREM', base .. 'delayed', id) == 1 then
        redis.call('HSET', base .. id, 'delay', 0)
        run_parent(base, id)
    else
        wake_parent(base, id)
    end
end

-- The key of a job's parent, the words that its queue's keys begin with, its id, and the link itself; nil if it has none.
-- Ids may have colons, so the key alone does not show where the id begins.
local function parent_of(key)
    local facts = redis.call('HMGET', key, 'parentKey', 'parent')
    if not facts[1] then
        return nil
    end
    local read, link = pcall(cjson.decode, facts[2] or '{}')
    link = read and type(link) == 'table' and link or {}
    local base, id = string.match(facts[1], '^(.*:)([^:]+)$')
    if type(link.queueKey) == 'string' and link.id and link.queueKey .. ':' .. link.id == facts[1] then
        base, id = link.queueKey .. ':', tostring(link.id)
    end
    return base and facts[1], base, id, link
end

local function report(q, id, set)
    local child = q.base .. id
    local key, base, parent, link = parent_of(child)
    local failed = set == 'failed'
    if not key or failed and not (link.fpof or link.cpof or link.idof or link.rdof) then
        return -- without one of these it waits until somebody has the child run again, or removes it
    end
    if redis.call('SREM', key .. ':dependencies', child) == 0 then
        return
    end
    local facts = redis.call('HMGET', child, 'returnvalue', 'failedReason')
    if not failed then
        redis.call('HSET', key .. ':processed', child, facts[1] or 'null')
    elseif link.fpof then
        redis.call('ZADD', key .. ':unsuccessful', whole(now), child)
        doom_parent(base, parent, child)
        return
    elseif link.cpof or link.idof then
        redis.call('HSET', key .. ':failed', child, facts[2] or '')
    end
    if failed and link.cpof or redis.call('SCARD', key .. ':dependencies') == 0 then
        wake_parent(base, parent)
    end
end

-- A child that is to run again is one that its parent waits for, as BullMQ's retry has it. A parent that went on by then is
-- not called back.
local function take_back(child, set)
    local key = redis.call('HGET', child, 'parentKey')
    if not key or redis.call('EXISTS', key) == 0 then
        return
    end
    local noted
    if set == 'completed' then
        noted = redis.call('HDEL', key .. ':processed', child)
    else
        noted = redis.call('ZREM', key .. ':unsuccessful', child) + redis.call('HDEL', key .. ':failed', child)
    end
    if noted > 0 then
        redis.call('SADD', key .. ':dependencies', child)
    end
end

-- A child that is removed is waited for no longer, whatever became of it.
local function disown(child)
    local key, base, parent = parent_of(child)
    if key and redis.call('SREM', key .. ':dependencies', child) == 1 and redis.call('SCARD', key .. ':dependencies') == 0 then
        wake_parent(base, parent)
    end
end
