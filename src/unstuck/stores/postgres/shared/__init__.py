"""Pieces that several statements have in common."""
