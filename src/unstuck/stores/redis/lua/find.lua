-- find: jobs that a filter means, newest first; finished ones by their end. Behind a cursor: that end, and the number.
-- needs: forget, meet, match
local CHUNK = 500
local FEW = 20000 -- jobs for which it is quicker to sort them all than to look through those of all states
local by_finish = which.dead or which.status == 'completed' or which.status == 'failed'

local function born(q, id)
    return tonumber(redis.call('ZSCORE', q.base .. 'unstuck:all', id) or '0')
end

local function behind(one)
    if not ask.number then
        return true
    end
    if by_finish and one.at ~= ask.at then
        return one.at < ask.at
    end
    return one.number < ask.number
end

local found = {}
local function look(q, id, at, status)
    local one = {q = q, id = id, at = at, number = born(q, id)}
    if behind(one) then
        one.status = status or state(q, id)
        if matches(q, id, one.status) then
            found[#found + 1] = one
        end
    end
end

-- A set from its end, in chunks, until enough is found; all that have the last one's score are looked at.
local function backwards(q, key, from, number_is_score, status)
    local most, offset, last = #found + ask.limit, 0, nil
    repeat
        local some = redis.call('ZREVRANGEBYSCORE', q.base .. key, from, '-inf', 'WITHSCORES', 'LIMIT', offset, CHUNK)
        for place = 1, #some, 2 do
            local score = tonumber(some[place + 1])
            if #found >= most and score ~= last then
                return
            end
            last = score
            look(q, some[place], not number_is_score and score or nil, status)
        end
        offset = offset + CHUNK
    until #some == 0
end

local function waiting(q)
    local ids = redis.call('LRANGE', q.base .. 'wait', 0, -1)
    for _, set in ipairs({'prioritized', 'delayed', 'waiting-children'}) do
        for _, id in ipairs(redis.call('ZRANGE', q.base .. set, 0, -1)) do
            ids[#ids + 1] = id
        end
    end
    return ids
end

for place in ipairs(ask.queues) do
    local q = queue(place)
    meet(q)
    if which.ids then
        for id in pairs(wanted) do
            if redis.call('ZSCORE', q.base .. 'unstuck:all', id) then
                local status = state(q, id)
                look(q, id, tonumber(redis.call('ZSCORE', q.base .. status, id) or '0'), status)
            end
        end
    elseif by_finish then
        local set = which.dead and 'failed' or which.status
        backwards(q, set, ask.at and whole(ask.at) or '+inf', false, set)
    elseif which.status == 'processing' or which.owner then
        for id in pairs(active(q)) do
            look(q, id, nil, 'processing')
        end
    elseif which.status == 'pending' and redis.call('ZCARD', q.base .. 'prioritized')
        + redis.call('ZCARD', q.base .. 'delayed') + redis.call('LLEN', q.base .. 'wait') < FEW then
        for _, id in ipairs(waiting(q)) do
            look(q, id, nil, 'pending')
        end
    else
        backwards(q, 'unstuck:all', ask.number and '(' .. whole(ask.number) or '+inf', true)
    end
end
table.sort(found, function(one, other)
    if by_finish and one.at ~= other.at then
        return one.at > other.at
    end
    if one.number ~= other.number then
        return one.number > other.number
    end
    return one.q.place .. one.id > other.q.place .. other.id
end)
local function answer(one)
    local job = row(one.q, one.id, one.status)
    local category, code, elsewhere = failure(one.q, one.id, one.status)
    if elsewhere and job[4][1] then -- the mark comes last: behind all that it is about
        also(job[4], 'error_category', category, 'error_code', code, 'elsewhere', '1')
    end
    return job
end

local rows = {}
for place = 1, math.min(ask.limit, #found) do
    local one = found[place]
    rows[place] = {answer(one), whole(one.number), one.at and whole(one.at) or false}
end
return rows
