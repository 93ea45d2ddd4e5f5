"""Tables of jobs that others made, taken as they are."""
