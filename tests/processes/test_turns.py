"""Turns among queues with real workers: six processes, three queues, twenty thousand jobs."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from support.waiting import until_async
from support.workers import Workers

from unstuck.testing import SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.long]

JOBS = {
    "bulk": 6668,
    "plain": 6666,
    "urgent": 6666,
}  # in the order in which they come: by age alone all bulk is first
PROCESSES = 6
STARVED = 2500  # starts in a row of other queues: one lease brings up to a thousand, all with one time


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ((), {"bulk": 1, "plain": 1, "urgent": 1}),
        (("--queues", "urgent=5,plain=3,bulk=1"), {"bulk": 1, "plain": 3, "urgent": 5}),
        (("--queues", "urgent,plain,bulk"), {"urgent": 1}),
    ],
    ids=["fair", "weights", "strict"],
)
async def test_each_queue_has_the_share_that_was_asked_for(
    harness: SQLiteHarness, tmp_path: Path, options: tuple[str, ...], asked: dict[str, int]
) -> None:
    with Workers(harness, tmp_path) as workers:
        for queue, count in JOBS.items():
            await workers.enqueue(queue, count, queue=queue)
        child = workers.start("--processes", str(PROCESSES), *options, app="turns_app:app")

        async def done() -> bool:
            return sum(each.completed for each in await harness.store.count()) == sum(JOBS.values())

        await until_async(done, 500, "all jobs to be done", child.log)

    started = [queue for (queue,) in harness.rows("SELECT queue FROM job ORDER BY started_at, seq")]
    # As long as all of them have jobs: of those that come later, strict order asks for none.
    contested = started[: min(_last(started, queue) for queue in asked)]
    found = Counter(contested)
    shares = {queue: found[queue] / len(contested) for queue in asked}
    assert len(contested) >= 5000
    assert shares == {
        queue: pytest.approx(part / sum(asked.values()), rel=0.1) for queue, part in asked.items()
    }
    for queue in asked:
        places = [-1, *(place for place, one in enumerate(contested) if one == queue), len(contested)]
        assert max(after - before for before, after in pairwise(places)) <= STARVED
    if asked == {"urgent": 1}:
        assert started.index("bulk") > _last(started, "plain") - STARVED


def _last(started: list[str], queue: str) -> int:
    return len(started) - 1 - started[::-1].index(queue)
