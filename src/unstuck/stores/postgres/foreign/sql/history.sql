-- history: the events of rows, in short: the last one and when, the last one that was no lease given by a reaper and
-- in which attempt, and how often a worker was lost since somebody put the row back as if it were new.
SELECT
    id,
    (array_agg(type ORDER BY at DESC))[1],
    max(at),
    (array_agg(type ORDER BY at DESC) FILTER (WHERE type <> 'reaper:adopted'))[1],
    (array_agg(attempt ORDER BY at DESC) FILTER (WHERE type <> 'reaper:adopted'))[1],
    count(*) FILTER (WHERE type IN ('reaper:requeued', 'crash:requeued') AND at > coalesce(requeued_at, ''))
FROM (
    SELECT id, type, attempt, at, max(at) FILTER (WHERE type = 'requeued') OVER (PARTITION BY id) AS requeued_at
    FROM (
        SELECT {event id} AS id, {event data}::json ->> 'type' AS type,
            {event data}::json #>> '{details,attempt}' AS attempt, {event data}::json #>> '{details,at}' AS at
        FROM {events} AS event
        WHERE {event named} AND {event data}::json ->> 'table' = %(table)s
    ) AS event_facts
    WHERE at IS NOT NULL AND type <> 'alert'
) AS of_row
GROUP BY id
