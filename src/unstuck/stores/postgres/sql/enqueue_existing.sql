-- enqueue_existing: the content of the jobs that have the addresses already.
SELECT named.queue, named.id, job.digest
FROM ROWS FROM (json_array_elements_text(%(queue)s::json), json_array_elements_text(%(id)s::json)) AS named (queue, id)
CROSS JOIN LATERAL (
    SELECT digest FROM {schema}.jobs WHERE jobs.id = named.id AND jobs.queue = named.queue LIMIT 1
) AS job
