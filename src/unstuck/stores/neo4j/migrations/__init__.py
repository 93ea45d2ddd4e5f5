"""The schema, one numbered file after the other."""
