-- concurrently
-- 006_expires_index.sql: the jobs that may expire, for reapers. One that was left behind half made is made again.
DROP INDEX CONCURRENTLY IF EXISTS {schema}.jobs_expires;
CREATE INDEX CONCURRENTLY jobs_expires ON {schema}.jobs (expires_at)
    WHERE status = 'pending' AND attempt_count = 0 AND expires_at IS NOT NULL;
