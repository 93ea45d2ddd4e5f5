// slots: every schedule that ever fired, and for which slot it fired last.
MATCH (s:{label}Schedule)
WITH s ORDER BY s.name
RETURN collect([s.name, s.slot]) AS answer
