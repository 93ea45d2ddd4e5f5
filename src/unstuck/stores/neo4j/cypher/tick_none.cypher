// tick_none: forget a schedule.
MATCH (s:{label}Schedule {name: $schedule})
DELETE s
RETURN count(*) AS answer
