"""Runs a handler in a process of its own, forked by a server that has the application imported."""
