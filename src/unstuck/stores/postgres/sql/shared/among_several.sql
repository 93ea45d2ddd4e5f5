-- among_several: among the queues in `room` turns, and then the positions in line, decide how many of each are taken. Looks
-- without locking anything.
WHERE (SELECT count(*) FROM room) = 1
UNION ALL
SELECT queue, length, only_new, turn, step, end_rank, end_seq, count(*) FROM (
    SELECT room.*, line.rank, line.seq FROM room CROSS JOIN LATERAL (
        SELECT rank, seq, row_number() OVER (ORDER BY rank, seq) - 1 AS number FROM (
            SELECT rank, seq FROM {schema}.jobs
            WHERE jobs.queue = room.queue AND rank IS NOT NULL AND (rank, seq) < (room.end_rank, room.end_seq)
                AND (jobs.settled IS NULL OR NOT room.only_new) AND {in_time}
            ORDER BY rank, seq
            LIMIT least(room.most, %(limit)s)
        ) AS first
    ) AS line
    WHERE (SELECT count(*) FROM room) > 1
    ORDER BY room.turn + room.step * line.number, line.rank, line.seq
    LIMIT %(limit)s
) AS best
GROUP BY queue, length, only_new, turn, step, end_rank, end_seq
