"""Call: a job that could be enqueued."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from unstuck.model import NewJob
from unstuck.payload import Result

R_co = TypeVar("R_co", covariant=True)


class Call(Struct, Generic[R_co], frozen=True, gc=False):
    """Which task, with which arguments and options; remembers what the task returns."""

    job: NewJob
    result: Result | None = None
