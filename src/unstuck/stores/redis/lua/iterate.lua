-- iterate: see to it that the schedulers of these jobs go on, though nobody may take the jobs any more. Answers those whose
-- slot has to be asked for: position of queue, id, options, and the time.
-- needs: line, theirs, iterate
even_if_full()
local unknown = {}
for _, ref in ipairs(ask.refs) do
    local q, id = queue(ref[1]), ref[2]
    local facts = redis.call('HMGET', q.base .. id, 'rjk', 'opts')
    local found = iteration(q, id, facts[1], facts[2])
    if found and not found.slot then
        unknown[#unknown + 1] = {q.place, id, facts[2], time}
    elseif found then
        iterate(q, found)
    end
end
wake_up()
return unknown
