-- 003_records.sql: small facts that all programs share. Older releases know nothing of them.

CREATE TABLE {schema}.records (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    value text NOT NULL, -- JSON, compared as text
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE INDEX records_age ON {schema}.records (kind, updated_at);
