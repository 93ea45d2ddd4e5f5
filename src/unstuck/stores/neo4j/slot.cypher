// slot: for which slot a schedule fired last.
OPTIONAL MATCH (s:{label}Schedule {name: $schedule})
RETURN s.slot AS answer
