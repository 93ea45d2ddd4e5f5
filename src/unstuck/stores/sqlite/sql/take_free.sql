-- take_free: drop the tokens that have returned.
DELETE FROM token WHERE bucket = :bucket AND free_at <= :now
