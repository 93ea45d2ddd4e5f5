-- tick_none: forget a schedule.
DELETE FROM schedule WHERE name = :schedule
