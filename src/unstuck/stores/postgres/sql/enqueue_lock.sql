-- enqueue_lock: make sure that keys have a row, and lock it, in one order. A call with the same key waits here.
INSERT INTO {schema}.spacing AS was (queue, key, job, until)
SELECT named.queue, named.key, '', clock_timestamp()
FROM ROWS FROM (json_array_elements_text(%(queue)s::json), json_array_elements_text(%(key)s::json)) AS named (queue, key)
ORDER BY named.key, named.queue
ON CONFLICT (queue, key) DO UPDATE SET until = was.until
RETURNING key
