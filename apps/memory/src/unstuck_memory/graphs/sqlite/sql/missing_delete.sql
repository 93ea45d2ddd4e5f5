DELETE FROM missing WHERE model IN (SELECT id FROM model) AND since = :since AND uid = :uid
