-- enqueue_existing: the content of the jobs that have the addresses already.
SELECT jobs.queue, jobs.id, jobs.digest
FROM ROWS FROM (json_array_elements_text(%(queue)s::json), json_array_elements_text(%(id)s::json)) AS named (queue, id)
JOIN {schema}.jobs ON jobs.id = named.id AND jobs.queue = named.queue
