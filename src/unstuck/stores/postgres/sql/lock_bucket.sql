-- lock_bucket: one at a time takes from a bucket. A statement of its own: only the next one sees what others took.
SELECT pg_advisory_xact_lock(hashtextextended(%(channel)s || ' ' || %(bucket)s, 0))
