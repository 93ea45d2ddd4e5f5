"""What a store answers about the tokens of a rate, and the buckets of queues that have none."""

from __future__ import annotations

from typing import NamedTuple

ANY_QUEUE = "any queue"  # the bucket that is closed while that of any queue without a rate is


class Grant(NamedTuple):
    """Tokens that were granted, the ``stamp`` to give them back by, and how things stand with the bucket after it.

    ``out`` counts all tokens that are out, ``first_back`` the seconds until the first of them returns, ``closed_for`` the
    seconds for which the bucket stays closed.
    """

    granted: int = 0
    stamp: int = 0
    out: int = 0
    first_back: float = 0.0
    closed_for: float = 0.0

    @property
    def wait(self) -> float:
        """Seconds until the next token can be granted, where fewer were granted than wanted."""
        return self.closed_for or self.first_back


def latest(interval: float) -> float:
    """In how many seconds a token returns at the latest. One that returns later was taken before the clock was put back.

    A worker that was too slow keeps its tokens out for up to one interval longer, or half a minute.
    """
    return 2 * interval + 30.0


def of_queue(queue: str) -> str:
    """The bucket that is closed while workers shall leave a queue without a rate alone. No bucket of a rate has such a name."""
    return f"queue {queue}"
