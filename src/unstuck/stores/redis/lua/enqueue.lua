-- enqueue: add the jobs whose ids are new, and start those over that are finished if they ask for it.
-- needs: line, expiry, spacing, add
local answers = add_all(ask.jobs, ask.routine)
wake_up()
return answers
