-- outbox: keep jobs for queues that this server does not have. They are enqueued there, and then taken off the list.
local function leave_for_others(texts)
    for _, text in ipairs(texts) do
        redis.call('RPUSH', store .. 'outbox', text)
    end
end
