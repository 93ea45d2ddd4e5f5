UPDATE model SET marked_to = :to WHERE id = :model
