"""An app that cannot be loaded, as when its database password is missing."""

raise RuntimeError("no password is set")
