INSERT INTO entity (
    uid, project, name, folded, type, version, created_at, updated_at, valid_from, valid_to, changed_by, observations
)
VALUES (
    :uid, :project, :name, :folded, :entity_type, :version, :created_at, :updated_at, :valid_from, :valid_to, :changed_by, :observations
)
RETURNING id
