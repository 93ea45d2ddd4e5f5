"""How listings are ordered and cut into pages, the same in every store: newest first, finished jobs by their end."""

from __future__ import annotations

from unstuck.errors import ConfigError
from unstuck.model import Filter, Status


def by_finish(which: Filter) -> bool:
    """Whether only finished jobs are listed."""
    return which.dead or which.status in (Status.COMPLETED, Status.FAILED)


def place(cursor: str, which: Filter) -> list[int]:
    """The numbers that a cursor is made of: a job's own, behind its end if that comes first."""
    try:
        numbers = [int(part) for part in cursor.split(".")]
    except ValueError:
        numbers = []
    if len(numbers) != 1 + by_finish(which) or max(numbers) >= 2**63:
        raise ConfigError(f"cursor {cursor[:40]!r} is none of this listing: begin again without it")
    return numbers
