-- fleet: every worker seen lately, the youngest sign of life first, and each schedule that ever fired, with its last slot
-- and no facts.
SELECT id AS name, started_at, seen_at, facts FROM worker
UNION ALL
SELECT name, NULL, slot, NULL FROM schedule
ORDER BY seen_at DESC, name
