UPDATE embedding SET bits = NULL, change = :change WHERE entity = :entity AND bits IS NOT NULL
