"""Turns: which of its queues a worker serves next, when several have jobs that are due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


class Turns:
    """Remembers which queues were served more than others.

    A queue that is a turn ahead waits until the others that have jobs had theirs; one with a weight of five has five jobs
    to a turn, and a batch counts as one job. Nothing is remembered of a queue that has no jobs, so it saves up no turns.
    In ``strict`` order nothing is remembered at all: the first queue that has jobs goes first.
    """

    def __init__(self, batch: Mapping[str, int], weights: Mapping[str, int], *, strict: bool) -> None:
        self._steps = {name: 1.0 / (weights.get(name, 1) * size) for name, size in batch.items()}
        self._strict = {name: float(turn) for turn, name in enumerate(batch)} if strict else {}
        self._alone = len(batch) < 2
        self._ahead: dict[str, float] = {}  # by how many turns; a queue that is not in it is none ahead

    def of(self, queue: str) -> tuple[float, float]:
        """The turn of a queue, and the step to that of its next job, as a lease reads them."""
        if self._alone:
            return 0.0, 0.0
        if self._strict:
            return self._strict[queue], 0.0
        return self._ahead.get(queue, 0.0), self._steps[queue]

    def taken(self, queues: Iterable[str]) -> None:
        """Count the jobs of a lease, each given by its queue.

        A queue that has more was served up to where the last of these stood; one that has none is taken there, too.
        """
        if self._alone or self._strict:
            return
        ahead, reached = dict(self._ahead), 0.0
        for queue, count in Counter(queues).items():
            step = self._steps[queue]
            ahead[queue] = ahead.get(queue, 0.0) + count * step
            reached = max(reached, ahead[queue] - step)
        self._ahead = {queue: at - reached for queue, at in ahead.items() if at > reached}
