DELETE FROM chunk WHERE entity = :entity AND model = :model
