-- forget: remove what is left of jobs that are gone and in no list, by their ids. Their events are searched for: only the
-- jobs themselves knew the numbers.
local function forget(q, removed)
    if not next(removed) then
        return
    end
    for id in pairs(removed) do
        redis.call('ZREM', q.base .. 'unstuck:all', id)
        redis.call('SREM', q.base .. 'unstuck:cancelled', id)
        redis.call('DEL', q.base .. id)
    end
    for _, text in ipairs(redis.call('ZRANGE', q.base .. 'unstuck:events', 0, -1)) do
        local read, event = pcall(cjson.decode, string.match(text, '^%d+ %d+ (.*)$'))
        if read and removed[event[2]] then
            redis.call('ZREM', q.base .. 'unstuck:events', text)
        end
    end
end
