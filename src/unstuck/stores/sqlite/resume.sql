-- resume: lift a pause.
UPDATE queue SET paused_at = NULL, paused_why = NULL WHERE name = :queue AND paused_at IS NOT NULL
