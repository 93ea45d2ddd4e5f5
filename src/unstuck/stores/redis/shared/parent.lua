-- parent: do for BullMQ's flows what its own workers do when a child has finished: note what came of it with the
-- parent, and let the parent run when it waits for nothing more. What a failure means the child's link says: fpof fails
-- the parent, cpof lets it run at once, idof and rdof take the child off its list, with or without a note.
local function run_parent(base, id)
    if redis.call('ZREM', base .. 'waiting-children', id) == 0 then
        return
    end
    local q = queue_at(base)
    local facts = redis.call('HMGET', base .. id, 'priority', 'delay', 'lane')
    local delay = as_number(facts[2]) or 0
    redis.call('HSET', base .. id, 'run_at', whole(now + delay))
    if delay > 0 then
        postpone(q, id, now + delay)
        say(q, 'delayed', id, 'delay', whole(now + delay))
    else
        stand(q, id, as_number(facts[1]) or 0, now, facts[3])
        say(q, 'waiting', id, 'prev', 'waiting-children')
    end
end

local function report(q, id, set)
    local facts = redis.call('HMGET', q.base .. id, 'parentKey', 'parent', 'returnvalue', 'failedReason')
    local key, child = facts[1], q.base .. id
    if not key then
        return
    end
    local base, parent = string.match(key, '^(.*:)([^:]+)$')
    local read, link = pcall(cjson.decode, facts[2] or '{}')
    link = read and type(link) == 'table' and link or {}
    local failed = set == 'failed'
    if failed and not (link.fpof or link.cpof or link.idof or link.rdof) then
        return -- it waits until somebody has the child run again
    end
    if not base or redis.call('SREM', key .. ':dependencies', child) == 0 then
        return
    end
    if not failed then
        redis.call('HSET', key .. ':processed', child, facts[3] or 'null')
    elseif link.fpof then
        redis.call('ZADD', key .. ':unsuccessful', whole(now), child)
        redis.call('HSET', key, 'defa', 'child ' .. child .. ' failed')
    elseif link.cpof or link.idof then
        redis.call('HSET', key .. ':failed', child, facts[4] or '')
    end
    local at_once = failed and (link.fpof or link.cpof)
    if at_once or redis.call('SCARD', key .. ':dependencies') == 0 then
        run_parent(base, parent)
    end
end
