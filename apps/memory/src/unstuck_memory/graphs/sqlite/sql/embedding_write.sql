INSERT INTO embedding (entity, model, project, type, version, fence, change, bits)
VALUES (:entity, :model, :project, :type, :version, :fence, :change, :bits)
ON CONFLICT (entity, model) DO UPDATE
SET version = excluded.version, fence = excluded.fence, change = excluded.change, bits = excluded.bits
