"""Ready-made pieces for particular frameworks and products, built on the public names only."""
