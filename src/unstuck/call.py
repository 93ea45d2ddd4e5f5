"""Call: a job that could be enqueued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from unstuck.model import NewJob

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[R_co]):
    """Which task, with which arguments and options; remembers for the type checker what it will return."""

    job: NewJob
