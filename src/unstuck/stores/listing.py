"""How listings are ordered and cut into pages, the same in every store: newest first, finished jobs by their end.

And what becomes of jobs in them that cannot be read, because somebody edited their records.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from unstuck.errors import ConfigError, UnreadableJob
from unstuck.model import Filter, Job, Ref, Status

log = logging.getLogger("unstuck.stores")

FEW = 5  # that cannot be read are told of one by one


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


def behind(cursor: str | None) -> int:
    """The number that a cursor of events is; one that is none is the beginning."""
    return int(cursor) if cursor is not None and cursor.isdecimal() else 0


def readable(
    which: Filter,
    jobs: list[Job],
    others: Sequence[tuple[Ref, str]],
    fix: str = "mend or delete its record in the store",
) -> list[Job]:
    """The jobs of a listing. The ``others`` cannot be read: they are left out, with a word about why.

    If none of those that were asked for by their ids can be read, that is an error.
    """
    none = which.ids is not None and not jobs and len(others) >= len(which.ids)
    for ref, why in others[:FEW]:
        told = f"job {ref.id!r} of queue {ref.queue!r} cannot be read ({why[:200]}): {fix}"
        if none:
            raise UnreadableJob(told)
        log.warning("%s; it is left out", told)
    if len(others) > FEW:
        log.warning("%d more cannot be read and are left out", len(others) - FEW)
    return jobs
