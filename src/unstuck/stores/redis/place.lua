-- place: how many due jobs of its queue stand before a job in line, counted up to a bound.
-- needs: line
local q = queue(1)
local score = tonumber(redis.call('ZSCORE', q.base .. 'prioritized', ask.id) or '0')
if score == 0 then
    return 0 -- not in line, or in the list that comes first
end
local mine, run_at = math.floor(score / SPAN), due_at(q, ask.id)
local key, before = q.base .. 'prioritized', redis.call('LLEN', q.base .. 'wait')
for _, class in ipairs(classes(q, 1)) do
    local priority = class.priority
    if priority == mine then
        before = before + redis.call('ZCOUNT', key, whole(mine * SPAN), '(' .. exact(score))
    elseif priority > 0 then
        -- Those of the class that became due early enough to have the better rank.
        local latest = rank_at(mine, run_at) - rank_at(priority, 0)
        local first = redis.call('ZCOUNT', key, '-inf', '(' .. whole(priority * SPAN))
        local low, high = first, first + redis.call('ZCOUNT', key, whole(priority * SPAN), '(' .. whole((priority + 1) * SPAN))
        while low < high do
            local middle = math.floor((low + high) / 2)
            if due_at(q, redis.call('ZRANGE', key, middle, middle)[1]) < latest then
                low = middle + 1
            else
                high = middle
            end
        end
        before = before + low - first
    end
end
return math.min(before, ask.bound)
