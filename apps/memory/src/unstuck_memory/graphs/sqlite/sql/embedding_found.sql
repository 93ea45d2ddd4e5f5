SELECT EXISTS (SELECT 1 FROM embedding WHERE entity = :entity AND bits IS NOT NULL)
