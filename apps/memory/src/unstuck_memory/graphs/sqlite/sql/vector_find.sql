SELECT id, numbers = :numbers FROM vector WHERE model = :model AND hash = :hash
