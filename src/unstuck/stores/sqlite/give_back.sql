-- give_back: return tokens that were not used, the youngest first.
DELETE FROM token WHERE rowid IN (
    SELECT rowid FROM token WHERE bucket = :bucket ORDER BY free_at DESC, rowid DESC LIMIT :count
)
