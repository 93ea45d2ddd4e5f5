"""What all tests share, those of the applications too."""

pytest_plugins = ["support.groups", "support.summary", "support.everywhere"]
