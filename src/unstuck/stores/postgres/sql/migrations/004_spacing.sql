-- 004_spacing.sql: which job stands for a key, and until when. Older releases know nothing of it.

CREATE TABLE {schema}.spacing (
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    job text COLLATE "C" NOT NULL, -- its id; it may have been deleted
    until timestamptz NOT NULL,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1);

CREATE INDEX spacing_end ON {schema}.spacing (until);
