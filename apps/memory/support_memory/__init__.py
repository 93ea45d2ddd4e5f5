"""What tests of the memory share."""
