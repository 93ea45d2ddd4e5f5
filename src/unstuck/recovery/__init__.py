"""Ends the leases of workers that died or fell silent."""
