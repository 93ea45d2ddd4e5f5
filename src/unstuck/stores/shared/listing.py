"""How listings are ordered and cut into pages, the same in every store: newest first, finished jobs by their end.

Jobs that cannot be read, because somebody edited their records, are left out and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from unstuck.protocol.errors import ConfigError, UnreadableJob
from unstuck.protocol.job import Job, Ref, Status
from unstuck.protocol.operators import Filter

log = logging.getLogger("unstuck.stores")

FEW = 5  # unreadable jobs that are logged one by one


def by_finish(which: Filter) -> bool:
    """Whether only finished jobs are listed."""
    return which.dead or which.status in (Status.COMPLETED, Status.FAILED)


def cursor_numbers(cursor: str, which: Filter) -> list[int]:
    """The numbers in a cursor: the job's own number, preceded by its end where jobs are ordered by that."""
    try:
        numbers = [int(part) for part in cursor.split(".")]
    except ValueError:
        numbers = []
    if len(numbers) != 1 + by_finish(which) or max(numbers) >= 2**63:
        raise ConfigError(f"cursor {cursor[:40]!r} is not a cursor of this listing: begin again without one")
    return numbers


def behind(cursor: str | None) -> int:
    """The number in a cursor of events; 0, the beginning, for one that is not valid."""
    return int(cursor) if cursor is not None and cursor.isdecimal() else 0


def readable(
    which: Filter,
    jobs: list[Job],
    others: Sequence[tuple[Ref, str]],
    fix: str = "fix or delete its record in the store",
) -> list[Job]:
    """The jobs of a listing. The ``others`` cannot be read: they are left out, and why is logged.

    If jobs were asked for by their ids, and none of them can be read, that is an error.
    """
    none = which.ids is not None and not jobs and len(others) >= len(which.ids)
    for ref, why in others[:FEW]:
        message = f"job {ref.id!r} of queue {ref.queue!r} cannot be read ({why[:200]}): {fix}"
        if none:
            raise UnreadableJob(message)
        log.warning("%s; it is left out", message)
    if len(others) > FEW:
        log.warning("%d more cannot be read and are left out", len(others) - FEW)
    return jobs
