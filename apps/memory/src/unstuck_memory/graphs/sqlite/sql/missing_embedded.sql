DELETE FROM missing WHERE model = :model AND since = :since AND uid = :uid
