"""By what a graph finds an existing name that is similar to a new one."""

from __future__ import annotations


def folded(name: str) -> str:
    """The same for names that differ only in case or spaces."""
    return "".join(name.casefold().split())
