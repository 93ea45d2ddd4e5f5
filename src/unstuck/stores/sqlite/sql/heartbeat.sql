-- heartbeat: renew leases that are still held. What is NULL stays as it is.
UPDATE job SET
    lease_until = :now + beat.lease, heartbeat_at = :now,
    progress = coalesce(beat.progress, job.progress), stage = coalesce(beat.stage, job.stage)
FROM (
    SELECT
        value ->> 'id' AS id, value ->> 'queue' AS queue, value ->> 'fence' AS fence, value ->> 'lease' AS lease,
        value ->> 'progress' AS progress, value ->> 'stage' AS stage
    FROM json_each(:beats)
) AS beat
WHERE job.id = beat.id AND job.queue = beat.queue AND job.fence = beat.fence AND job.status = 'processing'
