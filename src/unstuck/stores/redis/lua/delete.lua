-- delete: remove finished jobs and their events, the oldest first.
-- needs: line, match, finished, parent, erase
local found = finished(ask.limit)
for _, one in ipairs(found) do
    erase(one.q, one.id, one.set)
end
wake_up()
return #found
