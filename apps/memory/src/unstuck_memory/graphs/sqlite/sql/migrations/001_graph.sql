-- 001_graph.sql: everything the first release needs. Times are milliseconds since 1970, by the host's clock.

-- One row a version. The current version keeps its row: what it was before goes to a row of its own. So the id of an entity's
-- last row stands for the entity, and relations, words and vectors refer to it.
CREATE TABLE entity (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL,
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    folded TEXT NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    valid_from INTEGER NOT NULL,
    valid_to INTEGER CHECK (valid_to > valid_from),
    changed_by TEXT,
    observations TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX entity_version ON entity (uid, version);
CREATE UNIQUE INDEX entity_current ON entity (uid) WHERE valid_to IS NULL;
CREATE UNIQUE INDEX entity_name ON entity (project, name) WHERE valid_to IS NULL;
CREATE INDEX entity_similar ON entity (project, folded) WHERE valid_to IS NULL;
CREATE INDEX entity_history ON entity (project, name, valid_from);
CREATE INDEX entity_archived ON entity (project, valid_to) WHERE valid_to IS NOT NULL;

-- The words of current entities. Only the index is kept: the texts are in their rows.
CREATE VIRTUAL TABLE words USING fts5 (
    name, type, observations, content = '', contentless_delete = 1, tokenize = 'porter unicode61'
);

-- source and target are the ids of entities.
CREATE TABLE relation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL,
    project TEXT NOT NULL,
    source INTEGER NOT NULL,
    target INTEGER NOT NULL,
    type TEXT NOT NULL,
    strength REAL,
    confidence REAL,
    metadata TEXT,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    valid_from INTEGER NOT NULL,
    valid_to INTEGER CHECK (valid_to > valid_from),
    changed_by TEXT
) STRICT;
CREATE UNIQUE INDEX relation_version ON relation (uid, version);
CREATE UNIQUE INDEX relation_key ON relation (source, target, type) WHERE valid_to IS NULL;
CREATE INDEX relation_source ON relation (source, valid_to);
CREATE INDEX relation_target ON relation (target, valid_to);
CREATE INDEX relation_history ON relation (source, target, type);
CREATE INDEX relation_current ON relation (project) WHERE valid_to IS NULL;
CREATE INDEX relation_archived ON relation (project, valid_to) WHERE valid_to IS NOT NULL;

-- Entities up to the row marked_to are in table missing if they lack the model's embedding; those up to known_at may still have to
-- be put there, and all later ones were when they were written.
CREATE TABLE model (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    known_at INTEGER NOT NULL,
    marked_to INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, dimension)
) STRICT;

-- The current entities that lack an embedding, and only those. since is the valid_from of the version.
CREATE TABLE missing (
    model INTEGER NOT NULL,
    since INTEGER NOT NULL,
    uid TEXT NOT NULL,
    project TEXT NOT NULL,
    entity INTEGER NOT NULL,
    PRIMARY KEY (model, since, uid)
) STRICT, WITHOUT ROWID;
CREATE INDEX missing_in_project ON missing (model, project, since, uid);

-- The float32 values of a text's vector, little-endian. They are kept while a chunk refers to them, and after that
-- until a purge finds them in table unused for long enough.
CREATE TABLE vector (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    model INTEGER NOT NULL,
    hash BLOB NOT NULL,
    numbers BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vector_hash ON vector (model, hash);
CREATE TABLE unused (vector INTEGER PRIMARY KEY, since INTEGER NOT NULL) STRICT;
CREATE INDEX unused_since ON unused (since);

-- The latest embedding of an entity by a model. It is found only while bits is not NULL: of an older version or an archived entity it
-- is what the next one begins with. bits has the sign of each number of each chunk; change grows with every change of any row.
CREATE TABLE embedding (
    id INTEGER PRIMARY KEY,
    entity INTEGER NOT NULL,
    model INTEGER NOT NULL,
    project TEXT NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    change INTEGER NOT NULL,
    bits BLOB
) STRICT;
CREATE UNIQUE INDEX embedding_of ON embedding (entity, model);
CREATE UNIQUE INDEX embedding_change ON embedding (model, project, change);
CREATE INDEX embedding_current ON embedding (model, project) WHERE bits IS NOT NULL;
CREATE TABLE last_change (number INTEGER NOT NULL) STRICT;
INSERT INTO last_change (number) VALUES (0);

CREATE TABLE chunk (
    entity INTEGER NOT NULL,
    model INTEGER NOT NULL,
    number INTEGER NOT NULL,
    vector INTEGER NOT NULL,
    observation INTEGER,
    PRIMARY KEY (entity, model, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX chunk_vector ON chunk (vector);
