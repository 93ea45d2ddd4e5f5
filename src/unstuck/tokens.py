"""Grant and Bucket: what a store answers about the tokens of a rate."""

from __future__ import annotations

from typing import NamedTuple


class Grant(NamedTuple):
    """Tokens granted now, the seconds until the next one comes free, and a stamp to give these back by.

    ``wait`` is 0 if all were granted; of a closed bucket it is the time until it opens.
    """

    granted: int
    wait: float
    stamp: int = 0


class Bucket(NamedTuple):
    """Tokens that are out, the seconds until the first of them returns, and until the bucket opens again."""

    out: int
    first_back: float
    closed_for: float
