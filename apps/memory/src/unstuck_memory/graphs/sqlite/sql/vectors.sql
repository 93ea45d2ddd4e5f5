SELECT hash, numbers
FROM vector
WHERE model = :model AND hash IN (SELECT unhex(value) FROM json_each(:hashes))
