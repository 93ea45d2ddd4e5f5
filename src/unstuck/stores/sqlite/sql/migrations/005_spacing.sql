-- 005_spacing.sql: which job stands for a key, and until when. Older releases know nothing of it.

CREATE TABLE spacing (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    job TEXT NOT NULL, -- its id; it may have been deleted
    until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX spacing_end ON spacing (until);
