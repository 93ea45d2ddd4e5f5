"""Where the jobs of a URL will be, and for how long."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from unstuck.redact import redact

MEMORY = "/:memory:"


def whereabouts(url: str) -> str:
    """The URL without its secrets; a file by its full path, and whether it will be made.

    Whoever starts in the wrong folder sees both. To be asked before the store is opened.
    """
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or fleeting(url):
        return redact(url, 300)
    file = Path(parts.path[1:]).absolute()
    return redact(f"sqlite:///{file}", 1000) + ("" if file.exists() else ", a new file")


def fleeting(url: str) -> bool:
    """Whether the store is gone with the process that opened it."""
    return url.partition("?")[0].endswith(MEMORY)
