-- 002_halted.sql: a halt is a field of its own. Until here it was a pause whose reason begins with "CRITICAL: ".

ALTER TABLE {schema}.queues
    ADD COLUMN halted_at timestamptz, -- a halt that is older than the pause was lifted with an earlier one
    ADD COLUMN halted_why text;

UPDATE {schema}.queues SET halted_at = paused_at, halted_why = paused_why
WHERE paused_at IS NOT NULL AND starts_with(paused_why, 'CRITICAL: ');
