-- 003_halted.sql: a halt is a field of its own. Until here it was a pause whose reason begins with "CRITICAL: ".

ALTER TABLE queue ADD COLUMN halted_at INTEGER; -- a halt that is older than the pause was lifted with an earlier one
ALTER TABLE queue ADD COLUMN halted_why TEXT;

UPDATE queue SET halted_at = paused_at, halted_why = paused_why
WHERE paused_at IS NOT NULL AND substr(paused_why, 1, 10) = 'CRITICAL: ';
