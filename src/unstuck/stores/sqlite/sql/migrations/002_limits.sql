-- 002_limits.sql: lanes, closed buckets and schedules.
-- needs 2

ALTER TABLE job ADD COLUMN lane TEXT;

-- Jobs without a lane are in it, too: they must be found behind any number of others whose lanes are full.
CREATE INDEX job_lane ON job (queue, lane, rank) WHERE rank IS NOT NULL;
CREATE INDEX job_lane_running ON job (queue, lane) WHERE status = 'processing' AND lane IS NOT NULL;

CREATE TABLE bucket (
    name TEXT PRIMARY KEY,
    closed_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE schedule (
    name TEXT PRIMARY KEY,
    slot INTEGER NOT NULL -- the last one it fired for
) STRICT, WITHOUT ROWID;
