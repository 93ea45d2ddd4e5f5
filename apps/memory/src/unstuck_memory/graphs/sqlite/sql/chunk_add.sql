INSERT INTO chunk (entity, model, number, vector, observation) VALUES (:entity, :model, :number, :vector, :observation)
