-- in_time: whether one of the jobs may still be started. What has expired waits for a reaper.
(jobs.expires_at IS NULL OR jobs.expires_at > clock_timestamp() OR jobs.attempt_count > 0)
