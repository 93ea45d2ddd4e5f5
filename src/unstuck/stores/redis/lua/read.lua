-- read: the answers to commands that all see the same moment.
local answers = {}
for place, command in ipairs(ask.commands) do
    answers[place] = redis.call(unpack(command))
end
return answers
