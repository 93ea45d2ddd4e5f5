// in_time: whether the job `c` may still be started. What has expired waits for a reaper.
(c.expires_at IS NULL OR c.expires_at > timestamp() OR c.attempts > 0)
