"""Spacing: what becomes of a debounced or throttled job. The store has read, with its lock, which job stands for the key."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from unstuck.protocol.job import Enqueued, NewJob


class Standing(NamedTuple):
    """The job that stands for a key, while its interval lasts: whether nobody ever leased it, and its content if it is there.

    ``repeated`` is whether the new job is there already, because it was enqueued before and the answer was lost.
    """

    id: str
    waits: bool
    digest: str | None
    repeated: bool


class Effect(Enum):
    ADDED = auto()  # a new job, which stands for the key from now on
    REPLACED = auto()  # the job that stands has what the new one would have had
    DROPPED = auto()  # nothing has changed


def effect(job: NewJob, standing: Standing | None) -> Effect:
    """The rule of ``Leases.enqueue`` about spaced jobs. On Redis it is in ``lua/shared/spacing.lua``."""
    if (
        standing is None or standing.repeated
    ):  # adding it again changes nothing, also not what was called later
        return Effect.ADDED
    if job.throttle is not None:
        return Effect.DROPPED
    return Effect.REPLACED if standing.waits else Effect.ADDED


def existing(job: NewJob, standing: Standing) -> Enqueued:
    same = standing.digest is None or standing.digest == job.digest
    return Enqueued(job.queue, standing.id, created=False, same=same)
