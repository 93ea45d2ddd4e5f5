-- job_events: the events of a row, from the beginning.
SELECT row_number() OVER (ORDER BY {event at}), {event at}, {event data}::json ->> 'type', {event data}::text
FROM {events} AS event
WHERE {event named} AND {event data}::json ->> 'table' = %(table)s
ORDER BY 1
LIMIT %(limit)s OFFSET %(after)s
