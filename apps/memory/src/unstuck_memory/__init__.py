"""A knowledge-graph memory whose embeddings are made by a durable queue."""
