-- line: the head of one queue's line as triples of rank, number and bytes of payload, unless the queue is paused.
-- Jobs that have expired wait for a reaper.
SELECT json_group_array(json_array(rank, seq, size)) FROM (
    SELECT rank, seq, octet_length(payload) AS size FROM job
    WHERE queue = :queue AND rank IS NOT NULL AND (expires_at IS NULL OR expires_at > :now OR attempts > 0)
        AND NOT EXISTS (SELECT 1 FROM queue WHERE name = :queue AND paused_at IS NOT NULL)
    ORDER BY rank, seq
    LIMIT :limit
)
