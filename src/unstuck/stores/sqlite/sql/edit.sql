-- edit: give jobs that wait another priority or another time. What is NULL stays as it is.
UPDATE job SET
    priority = coalesce(:priority, priority),
    run_at = coalesce(:run_at, run_at),
    rank = iif(
        coalesce(:run_at, run_at) <= :now, coalesce(:run_at, run_at) - 60000 * coalesce(:priority, priority), NULL
    )
WHERE status = 'pending' AND (id, queue) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:refs))
RETURNING queue, id
