-- slot: for which slot a schedule fired last.
SELECT slot FROM schedule WHERE name = :schedule
