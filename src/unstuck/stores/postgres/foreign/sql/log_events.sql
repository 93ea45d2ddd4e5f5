-- log_events: write events down, in their order.
INSERT INTO {events} ({event columns})
SELECT {event values}
FROM ROWS FROM (json_to_recordset(%(events)s::json) AS (job text, type text, data json))
    WITH ORDINALITY AS logged (job, type, data, number)
ORDER BY number
