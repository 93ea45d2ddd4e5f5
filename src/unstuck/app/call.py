"""Call: a job that is not enqueued yet."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from unstuck.app.payload import Result
from unstuck.protocol.job import NewJob

R_co = TypeVar("R_co", covariant=True)


class Call(Struct, Generic[R_co], frozen=True, gc=False):
    """A task with its arguments and options, checked and not enqueued yet. ``task.call(…)`` makes one.

    ``await app.enqueue_many([send.call("ann"), send.options(delay=60).call("bob")])``
    """

    job: NewJob
    result: Result | None = None
