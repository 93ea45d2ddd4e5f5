-- verify: jobs that break a rule which must always hold, as rule, queue and id.
-- needs: line
local broken = {}
local function unless(holds, rule, q, id)
    if not holds and #broken < ask.limit then
        broken[#broken + 1] = {rule, q.name, id}
    end
end

-- Whether others removed a job: what we have of it beside it stays, in our listing, until a look of a reaper.
local function removed(q, id)
    return gone(q, id) and redis.call('ZSCORE', q.base .. 'unstuck:all', id)
end

local PLACES = {wait = 'LRANGE', active = 'LRANGE', prioritized = 'ZRANGE', delayed = 'ZRANGE', completed = 'ZRANGE',
    failed = 'ZRANGE'}
for place in ipairs(ask.queues) do
    local q, seen = queue(place), {}
    for set, command in pairs(PLACES) do
        local last
        for _, id in ipairs(redis.call(command, q.base .. set, 0, -1)) do
            local facts = redis.call('HMGET', q.base .. id, 'fence', 'leased', 'finishedOn', 'atm', 'crashes', 'settled',
                'failedReason', 'priority')
            unless(not gone(q, id), 'an entry has its job (' .. set .. ')', q, id)
            unless(not seen[id], 'a job is in one place', q, id)
            seen[id] = true
            local fence, attempts = as_number(facts[1]) or 0, (as_number(facts[4]) or 0) + (set == 'active' and 1 or 0)
            local finished = set == 'completed' or set == 'failed'
            unless(set ~= 'active' or not facts[2] or fence > 0, 'a processing job has an owner and a fence', q, id)
            unless(finished == (facts[3] and true or false), 'finished means finished_at, and nothing else does', q, id)
            unless((as_number(facts[5]) or 0) <= attempts, 'crashes are attempts', q, id)
            unless((as_number(string.match(facts[6] or '', '%d+$')) or 0) <= fence, 'no lease was ended that was not granted', q, id)
            unless(set ~= 'failed' or facts[7], 'a failed job says why', q, id)
            if set == 'prioritized' and facts[8] then
                local score = tonumber(redis.call('ZSCORE', q.base .. set, id))
                local class, run_at = math.floor(score / SPAN), due_at(q, id)
                unless(class == as_number(facts[8]), 'a place in line is that of its priority', q, id)
                unless(not last or last[1] ~= class or last[2] <= run_at, 'those that were due first stand first', q, id)
                last = {class, run_at}
            end
        end
    end
    for _, id in ipairs(redis.call('ZRANGE', q.base .. 'unstuck:leases', 0, -1)) do
        -- What another's worker took from us after our lease has its entry until the next look of a reaper.
        local facts = redis.call('HMGET', q.base .. id, 'fence', 'settled')
        local by_others = facts[1] and string.match(facts[2] or '', '%d*$') ~= facts[1]
        unless(active(q)[id] or by_others or removed(q, id), 'only a processing job has an owner or a lease', q, id)
    end
    for _, text in ipairs(redis.call('ZRANGE', q.base .. 'unstuck:events', 0, -1)) do
        local id = cjson.decode(string.match(text, '^%d+ %d+ (.*)$'))[2]
        unless(id == cjson.null or not gone(q, id) or removed(q, id), 'events die with their job', q, id)
    end
end
return broken
