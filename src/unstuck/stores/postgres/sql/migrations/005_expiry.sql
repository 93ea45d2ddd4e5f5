-- 005_expiry.sql: jobs that must start by a certain time, and what follows a final failure. Older releases ignore both: their
-- workers start a job that has expired, unless a reaper of this release was there first.

ALTER TABLE {schema}.jobs
    ADD COLUMN IF NOT EXISTS expires_at timestamptz,
    ADD COLUMN IF NOT EXISTS on_failure json;
