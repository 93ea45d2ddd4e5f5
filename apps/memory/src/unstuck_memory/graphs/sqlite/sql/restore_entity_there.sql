SELECT version, id, valid_to, project FROM entity WHERE uid = :uid ORDER BY version DESC
