-- requeues: how often reapers have put rows back, by what they told of it.
SELECT {event id}, count(*) FROM {events} AS event
WHERE {event named} AND {event data}::json ->> 'type' = 'reaper:requeued'
    AND {event data}::json ->> 'table' = %(table)s
GROUP BY 1
