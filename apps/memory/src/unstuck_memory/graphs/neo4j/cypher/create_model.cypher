// create_model: numbers are never given again.
CREATE (:EmbeddingModel {name: $name, dimension: $dimension, number: $number})
