-- answer: log the jobs that were `leased` at the `clock`, and answer with them in the order of their turns and positions in line.
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data)
    SELECT 'leased', queue, id, json_build_object(
        'type', 'leased', 'table', 'jobs', 'details', json_build_object('fence', fence, 'owner', %(owner)s::text)
    )
    FROM leased WHERE %(all_events)s
)
SELECT CASE WHEN count(*) > 0 THEN json_build_object('now', (SELECT now FROM clock), {lists})::text END
FROM (SELECT * FROM leased ORDER BY {stands}place, place_seq) AS leased
