DELETE FROM words WHERE rowid = :id
