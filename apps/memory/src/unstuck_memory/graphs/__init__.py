"""Places where graphs live."""
