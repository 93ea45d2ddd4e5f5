SELECT id, valid_to FROM entity WHERE uid = :uid AND project = :project ORDER BY version DESC LIMIT 1
