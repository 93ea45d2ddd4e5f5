-- Versions of this relation, and the current one of this key.
SELECT uid, version, valid_to FROM relation WHERE uid = :uid
UNION
SELECT uid, version, valid_to FROM relation
WHERE source = :source AND target = :target AND type = :type AND valid_to IS NULL
