UPDATE relation SET valid_to = max(:now, valid_from + 1) WHERE id = :id
