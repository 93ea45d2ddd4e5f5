-- match: whether a job is one of those that a filter means. The filter's fields are those of ask.which.
local which = ask.which
local wanted = which.ids and {}
for _, id in ipairs(which.ids or {}) do
    wanted[id] = true
end

-- Category and code of a job's failure, and whether that happened elsewhere: a worker of BullMQ's that has the last word
-- leaves a reason and no more, beside what may be there of an earlier failure of ours. We write the times of both together.
local function failure(q, id, status)
    local facts = redis.call('HMGET', q.base .. id, 'error_category', 'error_code', 'failedReason', 'error_at', 'finishedOn')
    if status == 'failed' and facts[3] and (not facts[4] or facts[4] ~= facts[5]) then
        return 'TRANSIENT', 'failed', true
    end
    return facts[1], facts[2], false
end

local function matches(q, id, status)
    if wanted and not wanted[id] then
        return false
    end
    if which.status and status ~= which.status or which.dead and status ~= 'failed' then
        return false
    end
    if not (which.task or which.key or which.owner or which.category or which.code or which.dead or which.before) then
        return true
    end
    local facts = redis.call('HMGET', q.base .. id, 'name', 'key', 'pb', 'settled', 'finishedOn')
    local category, code, elsewhere
    if which.category or which.code or which.dead then
        category, code, elsewhere = failure(q, id, status)
    end
    return not (which.task and facts[1] ~= which.task)
        and not (which.key and facts[2] ~= which.key)
        and not (which.owner and (facts[3] ~= which.owner or status ~= 'processing'))
        and not (which.category and category ~= which.category)
        and not (which.code and code ~= which.code)
        and not (which.dead and not elsewhere and string.match(facts[4] or '', '^cancelled'))
        and not (which.before and (as_number(facts[5]) or math.huge) >= now - which.before)
end
