"""A site of Django's on a PostgreSQL whose address stands in the environment."""
