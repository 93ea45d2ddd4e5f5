-- settled: which lease ended these jobs last, and how.
SELECT named.queue, named.id, job.settled_fence, job.settled
FROM ROWS FROM (json_array_elements_text(%(queue)s::json), json_array_elements_text(%(id)s::json)) AS named (queue, id)
CROSS JOIN LATERAL (
    SELECT settled_fence, settled FROM {schema}.jobs WHERE jobs.id = named.id AND jobs.queue = named.queue LIMIT 1
) AS job
