-- promote: give delayed jobs that have become due their position in line, a bounded number at a time. The time is asked
-- for once: an index is not searched for one that changes from row to row, and all delayed jobs would be read.
UPDATE {schema}.jobs SET rank = next_earliest_run_at - make_interval(mins => priority)
WHERE ctid = ANY (ARRAY(
    SELECT due.at FROM json_to_recordset(%(shares)s::json) AS share (queue text)
    CROSS JOIN LATERAL (
        SELECT ctid AS at FROM {schema}.jobs
        WHERE queue = share.queue AND status = 'pending' AND rank IS NULL AND next_earliest_run_at <= (SELECT clock_timestamp())
        ORDER BY next_earliest_run_at
        LIMIT %(most)s
        FOR UPDATE SKIP LOCKED
    ) AS due
))
