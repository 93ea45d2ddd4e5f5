-- events: what happened behind a cursor. Numbers are drawn before their transactions commit, so a number that
-- is missing may still come: nothing behind a gap is answered for a second, or a reader that follows the log would miss it.
WITH next AS MATERIALIZED (
    SELECT seq, at, type, queue, job_id, data::text, lag(seq) OVER (ORDER BY seq) AS before FROM (
        SELECT * FROM {schema}.job_events WHERE seq > %(after)s ORDER BY seq LIMIT %(limit)s
    ) AS found
)
SELECT seq, at, type, queue, job_id, data FROM next
WHERE seq < coalesce((
    SELECT min(seq) FROM next
    WHERE seq > coalesce(before, %(after)s) + 1 AND at > clock_timestamp() - interval '1 second'
), seq + 1)
ORDER BY seq
