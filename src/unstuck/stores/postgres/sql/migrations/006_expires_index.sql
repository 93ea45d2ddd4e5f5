-- 006_expires_index.sql: the jobs that may expire, for reapers. Not concurrently, which would wait for all transactions, also
-- for that of a caller who opens the store to enqueue in it. Writers wait for one scan of the table.
CREATE INDEX IF NOT EXISTS jobs_expires ON {schema}.jobs (expires_at)
    WHERE status = 'pending' AND attempt_count = 0 AND expires_at IS NOT NULL;
