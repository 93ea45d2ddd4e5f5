-- bucket: when the tokens that are out return.
SELECT free_at FROM token WHERE bucket = :bucket AND free_at > :now
