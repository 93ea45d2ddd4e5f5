INSERT INTO vector (model, hash, numbers) VALUES (:model, :hash, :numbers) RETURNING id
