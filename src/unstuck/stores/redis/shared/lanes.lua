-- lanes: the line of a queue whose lanes take turns.
-- A job's turn is how many of its lane would be running before it. Jobs without a lane wait for no one's turn.
local lane_line
function lane_line(q, limit, per_lane, anew)
    use_lanes(q)
    local lanes = redis.call('SMEMBERS', q.base .. 'unstuck:lanes')
    local known = redis.call('ZCARD', lane_key(q))
    for _, lane in ipairs(lanes) do
        known = known + redis.call('ZCARD', lane_key(q, lane))
    end
    if anew or known ~= redis.call('ZCARD', q.base .. 'prioritized') then -- a worker that knows no lanes was here
        index_all(q)
        lanes = redis.call('SMEMBERS', q.base .. 'unstuck:lanes')
    end
    local running = {}
    for id in pairs(active(q)) do
        local lane = redis.call('HGET', q.base .. id, 'lane')
        if lane then
            running[lane] = (running[lane] or 0) + 1
        end
    end
    local found = {}
    local function collect(key, room, turn)
        local ids = room > 0 and redis.call('ZRANGE', key, 0, math.min(limit, room) - 1, 'WITHSCORES') or {}
        for place = 1, #ids, 2 do
            local before = turn and turn + (place - 1) / 2 or 0
            found[#found + 1] = {q = q, id = ids[place], order = tonumber(ids[place + 1]), turn = before}
        end
    end
    for _, lane in ipairs(lanes) do
        collect(lane_key(q, lane), per_lane - (running[lane] or 0), running[lane] or 0)
    end
    collect(lane_key(q), limit)
    for place, id in ipairs(redis.call('LRANGE', q.base .. 'wait', -limit, -1)) do
        local order = rank_at(0, due_at(q, id)) * 4096 - place
        found[#found + 1] = {q = q, id = id, order = order, turn = 0, plain = true}
    end
    table.sort(found, function(one, other)
        if one.turn ~= other.turn then
            return one.turn < other.turn
        end
        return one.order < other.order
    end)
    -- Among queues the ranks decide how many of this one are taken, within it the turns decide which.
    local ranks = {}
    for place = 1, math.min(limit, #found) do
        ranks[place] = found[place].order / 4096
    end
    table.sort(ranks)
    local taken = {}
    for place, rank in ipairs(ranks) do
        local one = found[place]
        local score = not one.plain and redis.call('ZSCORE', q.base .. 'prioritized', one.id)
        if not score and not one.plain then -- as many as it should have, but not the same ones
            return lane_line(q, limit, per_lane, true)
        end
        one.rank, one.place = rank, score or '0'
        taken[place] = one
    end
    return taken
end
