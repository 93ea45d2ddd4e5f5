// 002_records: small facts that all programs share. Older releases know nothing of them.
CREATE CONSTRAINT {label}RecordKind_name IF NOT EXISTS FOR (k:{label}RecordKind) REQUIRE k.name IS UNIQUE;
CREATE CONSTRAINT {label}Record_name IF NOT EXISTS FOR (r:{label}Record) REQUIRE (r.kind, r.name) IS UNIQUE;
CREATE INDEX {label}Record_age IF NOT EXISTS FOR (r:{label}Record) ON (r.kind, r.updated_at);
