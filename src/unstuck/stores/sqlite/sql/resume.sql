-- resume: lift a pause, a halt or both.
UPDATE queue SET paused_at = NULL, paused_why = NULL, halted_at = NULL, halted_why = NULL
WHERE name = :queue AND paused_at IS NOT NULL
