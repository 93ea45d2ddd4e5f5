-- match: whether a job is one of those that a filter means. The filter's fields are those of ask.which.
local which = ask.which
local wanted = which.ids and {}
for _, id in ipairs(which.ids or {}) do
    wanted[id] = true
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
    local facts = redis.call('HMGET', q.base .. id, 'name', 'key', 'pb', 'error_category', 'error_code', 'settled',
        'finishedOn')
    return not (which.task and facts[1] ~= which.task)
        and not (which.key and facts[2] ~= which.key)
        and not (which.owner and (facts[3] ~= which.owner or status ~= 'processing'))
        and not (which.category and facts[4] ~= which.category)
        and not (which.code and facts[5] ~= which.code)
        and not (which.dead and string.match(facts[6] or '', '^cancelled'))
        and not (which.before and (tonumber(facts[7] or 'inf') or math.huge) >= now - which.before)
end
