"""Embeddings: what is embedded, by which model, in which jobs."""
