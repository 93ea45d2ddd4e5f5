"""Policies, job options and environment variables, checked when they are made."""
