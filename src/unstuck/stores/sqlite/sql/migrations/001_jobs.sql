-- 001_jobs.sql: everything the first release needs. Times are milliseconds since 1970, by the host's clock.

CREATE TABLE job (
    seq INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    id TEXT NOT NULL,
    task TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    payload TEXT NOT NULL,
    key TEXT,
    digest TEXT,
    priority INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 9),
    created_at INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    rank INTEGER, -- the place in line; only pending jobs that are due have one
    started_at INTEGER,
    finished_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL CHECK (max_attempts >= 1),
    crashes INTEGER NOT NULL DEFAULT 0,
    max_crashes INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    lease_until INTEGER, -- NULL while processing: held by a worker that knows no leases
    heartbeat_at INTEGER,
    stage TEXT,
    settled_fence INTEGER,
    settled TEXT,
    progress TEXT,
    result TEXT,
    error TEXT,
    backoff TEXT NOT NULL DEFAULT '[]',
    lapse_backoff TEXT NOT NULL DEFAULT '[]',
    timeout REAL,
    parent TEXT,
    trace TEXT,
    webhook TEXT,
    -- What each state must and must not have. One expression, because it is evaluated for every row written.
    CHECK (CASE status
        WHEN 'pending' THEN coalesce(owner, lease_until, finished_at) IS NULL
        WHEN 'processing' THEN owner IS NOT NULL AND coalesce(rank, finished_at) IS NULL
        WHEN 'completed' THEN finished_at IS NOT NULL AND coalesce(owner, lease_until, rank) IS NULL
        WHEN 'failed' THEN finished_at IS NOT NULL AND coalesce(owner, lease_until, rank) IS NULL
        ELSE 0
    END),
    CHECK (0 <= crashes AND crashes <= attempts)
) STRICT;

CREATE UNIQUE INDEX job_address ON job (id, queue);
CREATE INDEX job_ready ON job (queue, rank) WHERE rank IS NOT NULL;
-- Delayed jobs stay out of job_ready, or many urgent ones would lie at its head and slow every lease.
CREATE INDEX job_delayed ON job (queue, run_at) WHERE status = 'pending' AND rank IS NULL;
CREATE INDEX job_held ON job (lease_until) WHERE status = 'processing';
CREATE INDEX job_finished ON job (status, finished_at, queue, settled) WHERE finished_at IS NOT NULL;

CREATE TABLE event (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    queue TEXT NOT NULL,
    job TEXT,
    details TEXT NOT NULL
) STRICT;

CREATE INDEX event_job ON event (job, queue);

CREATE TABLE queue (
    name TEXT PRIMARY KEY,
    paused_at INTEGER,
    paused_why TEXT
) STRICT, WITHOUT ROWID;

-- One row a counter: a file has one writer at a time, so a row that all write is not a bottleneck here.
CREATE TABLE counter (
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE worker (
    id TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    facts TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
    bucket TEXT NOT NULL,
    free_at INTEGER NOT NULL -- when the token returns to its bucket
) STRICT;

CREATE INDEX token_bucket ON token (bucket, free_at);
