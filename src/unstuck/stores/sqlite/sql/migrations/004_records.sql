-- 004_records.sql: small facts that all programs share. Older releases know nothing of them.

CREATE TABLE record (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    value TEXT NOT NULL, -- JSON
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;

CREATE INDEX record_age ON record (kind, updated_at);
