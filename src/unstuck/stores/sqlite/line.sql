-- line: the head of one queue's line, unless the queue is paused.
SELECT rank, seq FROM job
WHERE queue = :queue AND rank IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM queue WHERE name = :queue AND paused_at IS NOT NULL)
ORDER BY rank, seq
LIMIT :limit
