-- slots: every schedule that ever fired, and for which slot it fired last.
SELECT name, slot FROM {schema}.schedules ORDER BY name
