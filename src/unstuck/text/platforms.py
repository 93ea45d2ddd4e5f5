"""Where Unstuck runs, and one line for systems where it does not."""

from __future__ import annotations

import sys


def refused() -> str:
    """Why it does not run here; empty where it does."""
    if sys.platform == "win32":
        return "unstuck does not run on Windows, which has no fork and no signals: use WSL 2 or a container with Linux"
    return ""
