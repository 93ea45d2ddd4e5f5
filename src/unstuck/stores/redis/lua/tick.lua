-- tick: note that a schedule fires for a slot and enqueue its jobs, unless it did so for this or a later one. Without a slot,
-- forget the schedule.
-- needs: line, expiry, spacing, add, outbox
if not ask.slot then
    return redis.call('HDEL', store .. 'slots', ask.schedule)
end
local last = tonumber(redis.call('HGET', store .. 'slots', ask.schedule) or '-inf')
if last >= ask.slot and last ~= ask.instead_of then
    return 0
end
redis.call('HSET', store .. 'slots', ask.schedule, whole(ask.slot))
if ask.abroad then
    leave_for_others(ask.abroad)
end
if ask.jobs[1] then
    add_all(ask.jobs, ask.routine)
    wake_up()
end
return 1
