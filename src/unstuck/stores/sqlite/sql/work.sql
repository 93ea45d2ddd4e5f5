-- work: is there anything to lease, and when does the next delayed job become due?
SELECT
    EXISTS (
        SELECT 1 FROM json_each(:queues) AS wanted
        WHERE NOT EXISTS (SELECT 1 FROM queue WHERE name = wanted.value AND paused_at IS NOT NULL)
            AND EXISTS (
                SELECT 1 FROM job WHERE queue = wanted.value AND rank IS NOT NULL
                    AND (expires_at IS NULL OR expires_at > :now OR attempts > 0)
            )
    ),
    (
        SELECT min((
            SELECT min(run_at) FROM job WHERE queue = wanted.value AND status = 'pending' AND rank IS NULL
        ))
        FROM json_each(:queues) AS wanted
        WHERE NOT EXISTS (SELECT 1 FROM queue WHERE name = wanted.value AND paused_at IS NOT NULL)
    )
