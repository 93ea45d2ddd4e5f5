-- A name that is given again begins after everything that had it before.
INSERT INTO entity (uid, project, name, folded, type, version, created_at, updated_at, valid_from, changed_by, observations)
SELECT :uid, :project, :name, :folded, :type, 1, began, began, began, :changed_by, :observations
FROM (
    SELECT max(:now, coalesce(max(valid_to), 0)) AS began
    FROM entity
    WHERE project = :project AND name = :name AND valid_to IS NOT NULL
)
RETURNING {entity}
