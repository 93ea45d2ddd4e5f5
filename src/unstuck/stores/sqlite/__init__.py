"""The embedded store: one SQLite file, shared by all processes of a host."""
