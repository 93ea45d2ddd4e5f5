-- complete: settle for the usual case, leases that all end well. Writes nothing that settle would not write.
UPDATE job SET
    status = 'completed', rank = NULL, finished_at = :now, result = ended.result,
    settled_fence = job.fence, settled = 'completed', owner = NULL, lease_until = NULL, heartbeat_at = NULL
FROM (
    SELECT value ->> 0 AS queue, value ->> 1 AS id, value ->> 2 AS fence, value ->> 3 AS result
    FROM json_each(:outcomes)
) AS ended
WHERE job.id = ended.id AND job.queue = ended.queue AND job.fence = ended.fence AND job.status = 'processing'
