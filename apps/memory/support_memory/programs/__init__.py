"""Programs that tests start, and that they may kill."""
