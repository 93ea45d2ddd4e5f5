"""Records: small facts that all programs of a store share, such as tokens, endpoints and schedules made at run time."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from unstuck.protocol.job import Json

LARGEST = 64 * 1024  # bytes of a value as JSON
LONGEST_NAME = 200  # characters
PAGE = 200  # records that one answer has at most: more of the largest ones are too much for some drivers


class Record(NamedTuple):
    """``version`` changes with every change. ``updated_at`` is when the value was last kept.

    The value is None if somebody edited it in the store so that it is not JSON.
    """

    kind: str
    name: str
    value: Json
    version: int
    updated_at: datetime


class Kept(NamedTuple):
    """Whether the record is now as the caller wanted it, and the record as it is now; None if there is none."""

    applied: bool
    record: Record | None
