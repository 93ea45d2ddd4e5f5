-- settled: which lease ended these jobs last, and how.
SELECT jobs.queue, jobs.id, jobs.settled_fence, jobs.settled
FROM ROWS FROM (json_array_elements_text(%(queue)s::json), json_array_elements_text(%(id)s::json)) AS named (queue, id)
JOIN {schema}.jobs ON jobs.id = named.id AND jobs.queue = named.queue
