// 001_jobs: everything the first release needs. An index holds only the nodes that have all of its properties: only jobs
// that wait and are due have a rank, only delayed ones a due_at, only those that run a lock_until, only those that are
// finished a processed_at. So each of these indexes is as small as what it is about.
// needs 1
CREATE CONSTRAINT {label}_id IF NOT EXISTS FOR (j:{label}) REQUIRE j.id IS UNIQUE;
CREATE CONSTRAINT {label}_entity IF NOT EXISTS FOR (j:{label}) REQUIRE (j.entity_uid, j.model, j.version) IS UNIQUE;
CREATE INDEX {label}_status IF NOT EXISTS FOR (j:{label}) ON (j.status);
CREATE INDEX {label}_lock_until IF NOT EXISTS FOR (j:{label}) ON (j.lock_until);
CREATE INDEX {label}_line IF NOT EXISTS FOR (j:{label}) ON (j.queue, j.rank, j.seq);
CREATE INDEX {label}_delayed IF NOT EXISTS FOR (j:{label}) ON (j.queue, j.due_at);
CREATE INDEX {label}_finished IF NOT EXISTS FOR (j:{label}) ON (j.status, j.processed_at);
CREATE INDEX {label}_seq IF NOT EXISTS FOR (j:{label}) ON (j.seq);
CREATE INDEX {label}_job_id IF NOT EXISTS FOR (j:{label}) ON (j.job_id);
CREATE CONSTRAINT {label}Store_name IF NOT EXISTS FOR (s:{label}Store) REQUIRE s.name IS UNIQUE;
CREATE CONSTRAINT {label}Queue_name IF NOT EXISTS FOR (q:{label}Queue) REQUIRE q.name IS UNIQUE;
CREATE CONSTRAINT {label}Worker_id IF NOT EXISTS FOR (w:{label}Worker) REQUIRE w.id IS UNIQUE;
CREATE CONSTRAINT {label}Bucket_name IF NOT EXISTS FOR (b:{label}Bucket) REQUIRE b.name IS UNIQUE;
CREATE CONSTRAINT {label}Schedule_name IF NOT EXISTS FOR (s:{label}Schedule) REQUIRE s.name IS UNIQUE;
CREATE INDEX {label}Grant_bucket IF NOT EXISTS FOR (g:{label}Grant) ON (g.bucket);
CREATE CONSTRAINT {label}Event_seq IF NOT EXISTS FOR (e:{label}Event) REQUIRE e.seq IS UNIQUE;
CREATE INDEX {label}Event_job IF NOT EXISTS FOR (e:{label}Event) ON (e.job, e.seq);
