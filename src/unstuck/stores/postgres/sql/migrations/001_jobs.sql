-- 001_jobs.sql: everything the first release needs. The names of columns are those that job tables in the wild
-- have; times are made by the server's clock. Names and ids are compared byte by byte, whatever the database's language.

CREATE TABLE {schema}.jobs (
    seq bigint GENERATED ALWAYS AS IDENTITY, -- the order of listings, and of jobs that have the same rank
    queue text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL DEFAULT 'pending',
    payload json NOT NULL,
    key text,
    digest text,
    priority smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 9),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_earliest_run_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    rank timestamptz, -- the place in line; only pending jobs that are due have one
    started_at timestamptz,
    finished_at timestamptz,
    attempt_count integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 3 CHECK (max_attempts >= 1),
    crashes integer NOT NULL DEFAULT 0,
    max_crashes integer,
    fence bigint NOT NULL DEFAULT 0,
    locked_by text COLLATE "C",
    lease_expires_at timestamptz, -- NULL while processing: held by a worker that knows no leases
    last_heartbeat_at timestamptz,
    stage text,
    expected_duration_ms bigint, -- for leases by stage, by whoever knows how long one takes
    settled_fence bigint,
    settled text,
    progress json,
    result json,
    error json,
    fail_code text, -- of a failed job: what error says in full
    fail_reason text,
    backoff json NOT NULL DEFAULT '[]',
    lapse_backoff json NOT NULL DEFAULT '[]',
    timeout double precision,
    lane text COLLATE "C",
    parent text,
    trace text,
    webhook text,
    -- What each state must and must not have.
    CONSTRAINT jobs_state CHECK (CASE status
        WHEN 'pending' THEN coalesce(locked_by, fail_code) IS NULL AND coalesce(lease_expires_at, finished_at) IS NULL
        WHEN 'processing' THEN locked_by IS NOT NULL AND coalesce(rank, finished_at) IS NULL
        WHEN 'completed' THEN finished_at IS NOT NULL AND locked_by IS NULL AND coalesce(lease_expires_at, rank) IS NULL
        WHEN 'failed' THEN finished_at IS NOT NULL AND locked_by IS NULL AND coalesce(lease_expires_at, rank) IS NULL
        ELSE false
    END),
    CONSTRAINT jobs_crashes CHECK (0 <= crashes AND crashes <= attempt_count),
    CONSTRAINT jobs_address PRIMARY KEY (id, queue)
) WITH (
    -- Every job is written three times: room on its page for the next version, and vacuum long before the
    -- defaults, which wait for a fifth of the table.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1
);

CREATE INDEX jobs_ready ON {schema}.jobs (queue, rank, seq) WHERE rank IS NOT NULL;
CREATE INDEX jobs_lane ON {schema}.jobs (queue, lane, rank, seq) WHERE rank IS NOT NULL AND lane IS NOT NULL;
-- Delayed jobs stay out of jobs_ready, or many urgent ones would lie at its head and slow every lease.
CREATE INDEX jobs_delayed ON {schema}.jobs (queue, next_earliest_run_at) WHERE status = 'pending' AND rank IS NULL;
-- Also for what one owner, one queue or one lane has running: few enough at a time to be read through.
CREATE INDEX jobs_held ON {schema}.jobs (lease_expires_at) WHERE status = 'processing';
-- For listings. One index of all jobs would be written once more when a job is leased.
CREATE INDEX jobs_waiting ON {schema}.jobs (seq) WHERE status = 'pending';
CREATE INDEX jobs_done ON {schema}.jobs (seq) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_finished ON {schema}.jobs (finished_at, seq) INCLUDE (queue, status) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_failed ON {schema}.jobs (finished_at, seq) INCLUDE (queue, settled) WHERE status = 'failed';

CREATE TABLE {schema}.job_events (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    type text NOT NULL,
    queue text COLLATE "C" NOT NULL,
    job_id text COLLATE "C",
    data json NOT NULL
);

CREATE INDEX job_events_job ON {schema}.job_events (job_id, queue, seq);

CREATE TABLE {schema}.queues (
    name text COLLATE "C" PRIMARY KEY,
    paused_at timestamptz,
    paused_why text
) WITH (fillfactor = 50);

-- Only ever inserted into, a row a batch: a row that all write would be a queue of its own. Folded now and then.
CREATE TABLE {schema}.counters (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE {schema}.workers (
    id text COLLATE "C" PRIMARY KEY,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    facts json NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE {schema}.tokens (
    bucket text COLLATE "C" NOT NULL,
    free_at timestamptz NOT NULL, -- when the token returns to its bucket
    stamp bigint NOT NULL -- the grant it was part of
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX tokens_bucket ON {schema}.tokens (bucket, free_at);

CREATE TABLE {schema}.buckets (
    name text COLLATE "C" PRIMARY KEY,
    closed_until timestamptz NOT NULL
);

CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    slot timestamptz NOT NULL -- the last one it fired for
);
