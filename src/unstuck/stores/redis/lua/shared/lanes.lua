-- lanes: the line of a queue whose lanes take turns.
-- A job's turn is how many of its lane would be running before it. Jobs without a lane wait for no one's turn.
-- Answers also what in_turn wants to know: of which lines a job may go ahead, and how much room each lane has.
local lane_line
function lane_line(q, limit, per_lane, rebuild)
    use_lanes(q)
    local lanes = redis.call('SMEMBERS', q.base .. 'unstuck:lanes')
    local known = redis.call('ZCARD', lane_key(q))
    for _, lane in ipairs(lanes) do
        known = known + redis.call('ZCARD', lane_key(q, lane))
    end
    if rebuild or known ~= redis.call('ZCARD', q.base .. 'prioritized') then -- a worker that knows no lanes was here
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
    local found, room, ahead = {}, {}, {['unstuck:lane'] = limit}
    local function collect(lane, most, turn)
        local ids = most > 0 and redis.call('ZRANGE', lane_key(q, lane), 0, math.min(limit, most) - 1, 'WITHSCORES') or {}
        for place = 1, #ids, 2 do
            local before = lane and turn + (place - 1) / 2 or 0
            found[#found + 1] = {q = q, id = ids[place], order = tonumber(ids[place + 1]), turn = before, lane = lane}
        end
    end
    for _, lane in ipairs(lanes) do
        local runs = running[lane] or 0
        room[lane] = per_lane - runs
        if runs == 0 then
            ahead['unstuck:lane:' .. lane] = 1
        end
        collect(lane, room[lane], runs)
    end
    collect(nil, limit, 0)
    for place, id in ipairs(redis.call('LRANGE', q.base .. 'wait', -limit, -1)) do
        found[#found + 1] = {q = q, id = id, order = -place, turn = 0, place = '0'}
    end
    table.sort(found, function(one, other)
        if one.turn ~= other.turn then
            return one.turn < other.turn
        end
        return one.order < other.order
    end)
    local taken = {}
    for place = 1, math.min(limit, #found) do
        local one = found[place]
        if not one.place then
            one.place = redis.call('ZSCORE', q.base .. 'prioritized', one.id)
            if not one.place or tonumber(one.place) ~= one.order then -- as many as it should have, but not the same ones
                return lane_line(q, limit, per_lane, true)
            end
        end
        taken[place] = one
    end
    return taken, ahead, room
end
