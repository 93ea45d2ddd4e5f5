-- finished: finished jobs that a filter means, of all queues at hand, those first that finished first; on demand only
-- those of which more than the entry is left.
local CHUNK = 500

local function finished(limit, whole_only)
    local found = {}
    local function look(q, id, set, at)
        if matches(q, id, set) and not (whole_only and gone(q, id)) then
            found[#found + 1] = {q = q, id = id, set = set, at = tonumber(at)}
        end
    end
    for place in ipairs(ask.queues) do
        local q = queue(place)
        for _, set in ipairs({'completed', 'failed'}) do
            if which.ids then
                for _, id in ipairs(which.ids) do
                    local at = redis.call('ZSCORE', q.base .. set, id)
                    if at then
                        look(q, id, set, at)
                    end
                end
            else
                local most, offset = #found + limit, 0
                local last = which.before and '(' .. whole(now - which.before) or '+inf'
                repeat
                    local some = redis.call('ZRANGEBYSCORE', q.base .. set, '-inf', last, 'WITHSCORES', 'LIMIT', offset, CHUNK)
                    for at = 1, #some, 2 do
                        if #found < most then
                            look(q, some[at], set, some[at + 1])
                        end
                    end
                    offset = offset + CHUNK
                until #some == 0 or #found >= most
            end
        end
    end
    table.sort(found, function(one, other)
        return one.at < other.at
    end)
    while #found > limit do
        table.remove(found)
    end
    return found
end
