"""Turns: how a worker with several queues divides itself among them."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from support.work import burst

from unstuck import ConfigError, Unstuck, Worker
from unstuck.protocol.leases import Share
from unstuck.testing.conformance.given import now
from unstuck.testing.conformance.reference import turns
from unstuck.worker.turns import Turns

ENDLESS = 10_000


class Line:
    """Queues with so many jobs each, the first queue's being the oldest, and a worker's turns among them."""

    def __init__(self, jobs: Mapping[str, int], **how: Any) -> None:
        given = how.pop("batch", {})
        batch = {name: given.get(name, 1) for name in jobs}
        self.turns = Turns(batch, how.pop("weights", {}), strict=how.pop("strict", False))
        self.left = dict(jobs)

    def lease(self, limit: int, times: int = 1) -> dict[str, int]:
        """How many jobs of each queue some leases bring."""
        brought: Counter[str] = Counter()
        for _ in range(times):
            shares = {name: self._share(name, limit) for name in self.left}
            ranks = {
                name: [float(place * ENDLESS + number) for number in range(min(limit, left))]
                for place, (name, left) in enumerate(self.left.items())
            }
            some = Counter(queue for queue, _ in turns(ranks, shares, limit))
            for name, count in some.items():
                self.left[name] -= count
            self.turns.taken(some.elements())
            brought += some
        return dict(brought)

    def _share(self, name: str, limit: int) -> Share:
        turn, step = self.turns.of(name)
        return Share(60.0, limit, turn=turn, step=step)


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_queues_that_have_jobs_have_equal_shares_however_many_are_leased_at_a_time(limit: int) -> None:
    line = Line({"a": ENDLESS, "b": ENDLESS, "c": ENDLESS})

    brought = line.lease(limit, 30)

    assert all(abs(count - 10 * limit) <= 1 for count in brought.values())


@pytest.mark.parametrize("limit", [1, 4, 60])
def test_weights_are_kept_however_many_are_leased_at_a_time(limit: int) -> None:
    line = Line({"bulk": ENDLESS, "urgent": ENDLESS}, weights={"bulk": 1, "urgent": 5})

    brought = line.lease(limit, 60)

    assert abs(brought["urgent"] - 50 * limit) <= 5
    assert abs(brought["bulk"] - 10 * limit) <= 1


def test_in_strict_order_a_queue_waits_until_those_before_it_are_empty() -> None:
    line = Line({"a": 5, "b": 5, "c": 5}, strict=True)

    assert line.lease(3) == {"a": 3}
    assert line.lease(3) == {"a": 2, "b": 1}
    line.left["a"] = 1
    assert line.lease(3) == {"a": 1, "b": 2}


def test_a_queue_without_jobs_saves_up_no_turns() -> None:
    line = Line({"a": ENDLESS, "b": 0})
    assert line.lease(10, 50) == {"a": 500}

    line.left["b"] = ENDLESS

    brought = line.lease(10, 10)
    assert abs(brought["b"] - 50) <= 1


def test_a_queue_that_was_alone_for_long_owes_nothing() -> None:
    line = Line({"a": ENDLESS, "b": ENDLESS, "c": 0})
    line.lease(10, 20)
    line.left["c"] = ENDLESS

    brought = line.lease(3, 10)

    assert all(abs(count - 10) <= 1 for count in brought.values())


def test_a_batch_is_one_turn() -> None:
    line = Line({"single": ENDLESS, "batched": ENDLESS}, batch={"batched": 20})

    brought = line.lease(42, 10)

    assert abs(brought["single"] - 20) <= 1
    assert abs(brought["batched"] - 400) <= 20


@pytest.mark.anyio
async def test_a_backlog_of_one_queue_does_not_delay_another(app: Unstuck) -> None:
    order: list[str] = []

    @app.task(queue="bulk")
    async def move(number: int) -> None:
        order.append("bulk")

    @app.task(queue="urgent")
    async def ring(number: int) -> None:
        order.append("urgent")

    early = now() - timedelta(hours=1)
    await app.enqueue_many([move.options(run_at=early).call(number) for number in range(2000)])
    await app.enqueue_many([ring.call(number) for number in range(5)])
    await burst(app, concurrency=2)

    assert len(order) == 2005
    assert order[:200].count("urgent") == 5


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("how", "first"),
    [
        ({"queues": ["a", "b"], "order": "strict"}, {"a": 20}),
        ({"queues": ["b", "a"], "order": "strict"}, {"b": 20}),
        ({"queues": {"a": 3, "b": 1}}, {"a": 15, "b": 5}),
        ({"queues": ["a", "b"]}, {"a": 10, "b": 10}),
    ],
)
async def test_a_worker_serves_its_queues_as_it_was_asked_to(
    app: Unstuck, how: dict[str, Any], first: dict[str, int]
) -> None:
    order: list[str] = []
    _two_queues(app, order)

    await app.enqueue_many([app.tasks[name].call() for name in "ba" for _ in range(50)])
    await burst(app, concurrency=1, **how)

    assert len(order) == 100
    assert {
        name: abs(Counter(order[:20])[name] - count) <= 2 for name, count in first.items()
    } == dict.fromkeys(first, True)


def _two_queues(app: Unstuck, order: list[str]) -> None:
    @app.task(queue="a", name="a")
    async def a() -> None:
        order.append("a")

    @app.task(queue="b", name="b")
    async def b() -> None:
        order.append("b")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"queues": {"a": 0}}, "queues: the weight of 'a' is 0: it must be a whole number from 1 to 1000"),
        (
            {"queues": {"a": 1001}},
            "queues: the weight of 'a' is 1001: it must be a whole number from 1 to 1000",
        ),
        (
            {"queues": {"a": 1.5}},
            "queues: the weight of 'a' is 1.5: it must be a whole number from 1 to 1000",
        ),
        ({"queues": {"a": 1}, "order": "strict"}, "order='strict' and weights are two orders: "),
        ({"queues": ["a"], "order": "random"}, "order is 'random': it must be 'fair' or 'strict'"),
    ],
)
@pytest.mark.anyio
async def test_an_order_that_cannot_be_kept_is_refused(app: Unstuck, how: dict[str, Any], why: str) -> None:
    _two_queues(app, [])
    with pytest.raises(ConfigError) as caught:
        Worker(app, **how)

    assert str(caught.value).startswith(why)
