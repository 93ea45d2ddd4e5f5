INSERT OR REPLACE INTO words (rowid, name, type, observations) VALUES (:id, :name, :type, :observations)
