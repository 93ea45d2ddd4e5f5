-- give_back: return tokens that were not used, of those that were taken together.
DELETE FROM token WHERE rowid IN (
    SELECT rowid FROM token WHERE bucket = :bucket AND free_at = :stamp LIMIT :count
)
