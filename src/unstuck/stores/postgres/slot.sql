-- slot: for which slot a schedule fired last.
SELECT slot FROM {schema}.schedules WHERE name = %(schedule)s
