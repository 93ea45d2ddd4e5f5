-- tick_none: forget a schedule.
DELETE FROM {schema}.schedules WHERE name = %(schedule)s
RETURNING name
