"""Runs jobs: leases them, calls their handlers, renews their leases and settles them."""
