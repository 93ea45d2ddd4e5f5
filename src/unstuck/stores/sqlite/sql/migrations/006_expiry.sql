-- 006_expiry.sql: jobs that must start by a certain time, and what follows a final failure. Older releases ignore both: their
-- workers start a job that has expired, unless a reaper of this release was there first.

ALTER TABLE job ADD COLUMN expires_at INTEGER;
ALTER TABLE job ADD COLUMN on_failure TEXT; -- JSON

CREATE INDEX job_expires ON job (expires_at) WHERE status = 'pending' AND attempts = 0 AND expires_at IS NOT NULL;
