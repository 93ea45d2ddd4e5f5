INSERT INTO relation (
    uid, project, source, target, type, strength, confidence, metadata, version, created_at, updated_at, valid_from, valid_to,
    changed_by
)
VALUES (
    :uid, :project, :source, :target, :type, :strength, :confidence, :metadata, :version, :created_at, :updated_at, :valid_from,
    :valid_to, :changed_by
)
