-- line_new: the head of one queue's line, unless the queue is paused: rank, number, bytes of payload, and whether nobody had
-- the job before.
SELECT rank, seq, octet_length(payload), settled IS NULL FROM job
WHERE queue = :queue AND rank IS NOT NULL AND (expires_at IS NULL OR expires_at > :now OR attempts > 0)
    AND NOT EXISTS (SELECT 1 FROM queue WHERE name = :queue AND paused_at IS NOT NULL)
ORDER BY rank, seq
LIMIT :reach
