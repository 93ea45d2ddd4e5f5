-- ended: how leases ended, by the events: the last one for each row and fence.
SELECT DISTINCT ON (1, 2) {event id}, {event data}::json #>> '{details,fence}', {event data}::json #>> '{details,word}'
FROM {events} AS event
WHERE {event named} AND {event data}::json ->> 'table' = %(table)s
    AND {event data}::json #>> '{details,fence}' = ANY (%(fences)s)
    AND {event data}::json #>> '{details,word}' IS NOT NULL
    AND split_part({event data}::json ->> 'type', ':', 1) NOT IN ('reaper', 'crash')
