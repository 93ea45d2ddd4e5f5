// 004_expiry: jobs that must start by a certain time. Older releases ignore it: their workers start a job that has expired,
// unless a reaper of this release was there first.
CREATE INDEX {label}_expires IF NOT EXISTS FOR (j:{label}) ON (j.status, j.expires_at);
