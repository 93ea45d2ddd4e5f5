"""The reference model by itself: stores are judged by it, so it must not be wrong in a way that they could share."""

from typing import Any

import pytest

from unstuck.protocol.job import Ending, Lease, NewJob, Status
from unstuck.protocol.leases import Share, Verdict
from unstuck.protocol.outcome import Settled, completed, failed, released, retried
from unstuck.testing.conformance.given import new, trouble
from unstuck.testing.conformance.reference import Model, Row

LEASE = 60.0


def queued(model: Model, id_: str = "a", **facts: Any) -> Row:
    assert model.enqueue(new(id=id_, **facts))
    return model.rows[id_]


def leased(model: Model, id_: str = "a", fence: int = 1, **facts: Any) -> Lease:
    queued(model, id_, **facts)
    return granted(model, id_, fence)


def granted(model: Model, id_: str, fence: int) -> Lease:
    model.lease(lease := Lease("q", id_, fence), "ann", LEASE)
    return lease


def exactly(count: int) -> range:
    return range(count, count + 1)


def facts(row: Row) -> tuple[Status, int, int, str | None]:
    return row.status, row.attempts, row.crashes, row.owner


def test_a_job_is_due_when_its_delay_has_passed_and_its_queue_is_not_paused() -> None:
    model = Model(now=10.0)
    row = queued(model, delay=5.0)

    assert (row.run_at, model.due()) == (15.0, [])
    model.now = 15.0
    assert model.due() == [row]
    model.paused = "for a while"
    assert model.due() == []


@pytest.mark.parametrize(
    ("one", "other", "first"),
    [((2, 10.0), (1, 10.0), True), ((2, 11.0), (1, 10.0), False), ((1, 0.0), (2, 10.0), False),
     ((1, 8.0), (1, 10.0), True), ((1, 9.5), (1, 10.0), False)],
)  # fmt: skip
def test_as_urgent_and_earlier_or_more_urgent_and_not_later_goes_first(
    one: tuple[int, float], other: tuple[int, float], first: bool
) -> None:
    rows = [queued(Model(now=at), priority=priority) for priority, at in (one, other)]

    assert rows[0].before(rows[1]) is first


def test_an_existing_job_is_left_as_it_is_unless_it_has_finished_and_shall_run_again() -> None:
    model = Model()
    lease = leased(model)
    assert not model.enqueue(new(id="a", again=True))
    model.settle(failed(lease, trouble(), crashed=True))
    assert not model.enqueue(new(id="a"))
    assert facts(model.rows["a"]) == (Status.FAILED, 1, 1, None)
    model.now = 100.0
    again = new(id="a", again=True, delay=7.0, priority=1)

    assert model.enqueue(again)
    row = model.rows["a"]
    assert (facts(row), row.new, row.run_at) == ((Status.PENDING, 0, 0, None), again, 107.0)


def test_a_lease_counts_an_attempt_and_lasts_as_long_as_was_asked_for() -> None:
    model = Model(now=10.0)
    leased(model, fence=3)
    row = model.rows["a"]

    assert facts(row) == (Status.PROCESSING, 1, 0, "ann")
    assert (row.fence, row.lease_until) == (3, 70.0)
    with pytest.raises(AssertionError, match=r"^a job was leased that is not due"):
        granted(model, "a", 4)


@pytest.mark.parametrize("fence", [4, 5])
def test_a_fence_that_does_not_grow_is_noticed(fence: int) -> None:
    model = Model()
    model.settle(released(leased(model, fence=5)))

    with pytest.raises(AssertionError, match=r"^a fence did not grow"):
        granted(model, "a", fence)


@pytest.mark.parametrize(
    ("share", "leasable", "lanes"),
    [
        (Share(LEASE, 9), 5, {"x": 2, "y": 1, None: 2}),
        (Share(LEASE, 2), 2, {"x": 2, "y": 1, None: 2}),
        (Share(LEASE, 1, 9), 1, {"x": 2, "y": 1, None: 2}),
        (Share(LEASE, 9, 4), 2, {"x": 2, "y": 1, None: 2}),
        (Share(LEASE, 9, 1), 0, {"x": 2, "y": 1, None: 2}),
        (Share(LEASE, 9, None, 2), 4, {"x": 1, "y": 1, None: 2}),
        (Share(LEASE, 9, None, 1), 3, {"y": 1, None: 2}),
    ],
)
def test_what_may_be_leased_is_what_is_due_within_all_limits(
    share: Share, leasable: int, lanes: dict[str | None, int]
) -> None:
    model = Model()
    for number, lane in enumerate(["x", None]):
        leased(model, f"running {number}", lane=lane)
    for number, lane in enumerate(["x", "x", "y", None, None]):
        queued(model, f"due {number}", lane=lane)
    queued(model, "later", lane="y", delay=5.0)

    assert model.running() == {"x": 1, None: 1}
    assert (model.leasable(share), dict(model.room(share))) == (exactly(leasable), lanes)


def test_a_lane_with_more_running_than_it_may_has_no_room() -> None:
    model = Model()
    leased(model, "1", lane="x")
    leased(model, "2", lane="x")
    queued(model, "3", lane="x")

    assert model.leasable(Share(LEASE, 9, None, 1)) == exactly(0)


@pytest.mark.parametrize(
    ("share", "leasable"),
    [
        (Share(LEASE, 9), range(2, 3)),
        (Share(LEASE, 1), range(1, 2)),
        (Share(LEASE, 9, 9), range(2, 3)),
        (Share(LEASE, 9, 2), range(3)),
        (Share(LEASE, 1, 3), range(2)),
        (Share(LEASE, 9, 0), range(1)),
        (Share(LEASE, 9, None, 9), range(2, 3)),
        (Share(LEASE, 2, None, 9), range(3)),
        (Share(LEASE, 9, None, 2), range(3)),
    ],
)
def test_of_new_jobs_a_lease_brings_no_fewer_than_limits_leave_when_the_others_have_their_room(
    share: Share, leasable: range
) -> None:
    model = Model()
    for number in range(3):
        lease = leased(model, f"back {number}", lane="x")
        model.settle(released(lease))
    for number in range(2):
        queued(model, f"new {number}", lane="x")

    assert model.leasable(share._replace(only_new=True)) == leasable


def test_a_beat_renews_the_lease_it_names_and_no_other() -> None:
    model = Model()
    lease = leased(model, fence=2)
    model.now = 50.0

    assert model.beat(Lease("q", "a", 1), LEASE) is Verdict.LOST
    assert model.beat(Lease("q", "nobody", 2), LEASE) is Verdict.LOST
    assert model.rows["a"].lease_until == 60.0
    assert model.beat(lease, LEASE) is Verdict.HELD
    assert model.rows["a"].lease_until == 110.0
    model.settle(completed(lease))
    assert model.beat(lease, LEASE) is Verdict.LOST


def test_a_beat_for_a_cancelled_job_learns_of_it() -> None:
    model = Model()
    lease = leased(model)
    model.cancel("a")

    assert model.beat(lease, LEASE) is Verdict.CANCELLED


@pytest.mark.parametrize(
    ("made", "then", "due"),
    [
        (completed, (Status.COMPLETED, 1, 0, None), 0.0),
        (lambda lease: failed(lease, trouble()), (Status.FAILED, 1, 0, None), 0.0),
        (lambda lease: retried(lease, trouble(), 5.0), (Status.PENDING, 1, 0, None), 15.0),
        (lambda lease: retried(lease, trouble(), 0.0, crashed=True), (Status.PENDING, 1, 1, None), 0.0),
        (released, (Status.PENDING, 0, 0, None), 0.0),
    ],
    ids=["completed", "failed", "retried", "crashed", "released"],
)
def test_an_outcome_is_applied_once_and_only_by_the_holder(made: Any, then: Any, due: float) -> None:
    model = Model()
    lease = leased(model, fence=2)
    model.now = 10.0

    assert model.settle(made(lease._replace(fence=1))) is Settled.LOST
    assert model.settle(made(lease._replace(id="nobody"))) is Settled.LOST
    assert model.settle(made(lease)) is Settled.APPLIED
    row = model.rows["a"]
    assert (facts(row), row.run_at, model.paused, model.halted) == (then, due, None, None)
    assert row.settled == (2, made(lease).ending)
    assert model.settle(made(lease)) is Settled.REPEATED
    other = failed if made(lease).ending is Ending.RELEASED else lambda lease, _: released(lease)
    assert model.settle(other(lease, trouble())) is Settled.LOST
    assert facts(row) == then


def test_crashes_add_up() -> None:
    model = Model()
    for fence in (1, 2):
        lease = leased(model) if fence == 1 else granted(model, "a", fence)
        model.settle(retried(lease, trouble(), 0.0, crashed=True))

    assert facts(model.rows["a"]) == (Status.PENDING, 2, 2, None)


def test_an_outcome_may_pause_or_halt_the_queue_and_none_resumes_it() -> None:
    model = Model()
    first, second, third = leased(model, "a"), leased(model, "b"), leased(model, "c")
    model.enqueue(new(key="d"))
    model.settle(failed(first, trouble(), halt="broken"))
    assert (model.paused, model.halted, model.due()) == (None, "broken", [])

    model.settle(released(second, pause="no quota"))
    model.settle(completed(third))

    assert (model.paused, model.halted) == ("no quota", "broken")
    assert model.resume() is True
    assert (model.paused, model.halted, len(model.due())) == (None, None, 2)
    assert model.resume() is False


def test_a_lease_that_ran_out_and_no_other_may_be_taken_over_without_counting() -> None:
    model = Model()
    leased(model, fence=2)
    queued(model, "waiting")
    model.now = 60.0
    assert model.lapsed() == set()
    with pytest.raises(AssertionError, match=r"^a live lease was taken over"):
        model.reclaim(Lease("q", "a", 3), "reaper", 30.0)
    model.now = 61.0

    assert model.lapsed() == {"a"}
    model.reclaim(Lease("q", "a", 3), "reaper", 30.0)
    row = model.rows["a"]
    assert (facts(row), row.fence, row.lease_until) == ((Status.PROCESSING, 1, 0, "reaper"), 3, 91.0)


def test_cancelling_ends_what_has_not_finished_and_is_an_outcome_of_nobody() -> None:
    model = Model()
    lease = leased(model)

    assert model.cancel("a")
    row = model.rows["a"]
    assert (facts(row), row.settled) == ((Status.FAILED, 1, 0, None), (-1, Ending.CANCELLED))
    assert model.settle(completed(lease)) is Settled.LOST
    assert not model.cancel("a")


def test_a_schedule_fires_for_later_slots_only_and_brings_its_jobs() -> None:
    model = Model()

    assert model.tick("s", 10.0, [new(id="a"), new(id="b")])
    assert not model.tick("s", 10.0, [new(id="c")])
    assert not model.tick("s", 9.0, [new(id="c")])
    assert model.tick("t", 9.0, [])
    assert model.tick("s", 11.0, [new(id="a")])
    assert (model.slots, list(model.rows)) == ({"s": 11.0, "t": 9.0}, ["a", "b"])


def test_only_what_has_finished_is_requeued_or_deleted() -> None:
    model = Model()
    lease = leased(model)
    assert (model.requeue("a"), model.delete("a")) == (False, False)
    model.settle(failed(lease, trouble(), crashed=True))
    model.now = 30.0

    assert model.requeue("a")
    assert (facts(model.rows["a"]), model.rows["a"].run_at) == ((Status.PENDING, 0, 0, None), 30.0)
    assert (model.requeue("a"), model.delete("a")) == (False, False)
    model.settle(completed(granted(model, "a", 2)))
    assert model.delete("a")
    assert model.rows == {}


def spaced(id_: str, key: str = "k", **facts: Any) -> NewJob:
    return new(id=id_, key=key, **facts)


def test_a_debounced_job_is_replaced_until_it_was_leased_or_its_interval_is_over() -> None:
    model = Model(now=10.0)
    wait: dict[str, Any] = {"debounce": 5.0, "delay": 5.0}
    assert model.space(spaced("a", **wait)) == ("a", True)
    model.now = 14.0
    assert model.space(spaced("b", lane="x", **wait)) == ("a", False)
    assert (model.rows["a"].run_at, model.rows["a"].new.lane, list(model.rows)) == (19.0, "x", ["a"])

    model.now = 19.0
    assert model.space(spaced("c", **wait)) == ("c", True)
    model.rows["c"].run_at = 19.0
    granted(model, "c", 1)
    assert model.space(spaced("d", **wait)) == ("d", True)
    model.cancel("d")
    assert model.space(spaced("e", **wait)) == ("e", True)
    model.rows["e"].fence = 7
    assert model.space(spaced("f", **wait)) == ("f", True)
    del model.rows["f"]
    assert model.space(spaced("g", **wait)) == ("g", True)
    assert model.space(spaced("h", "other", **wait)) == ("h", True)
    assert list(model.rows) == ["a", "c", "d", "e", "g", "h"]


def test_a_throttled_job_is_dropped_until_the_interval_of_the_first_is_over() -> None:
    model = Model(now=10.0)
    assert model.space(spaced("a", throttle=5.0)) == ("a", True)
    model.now = 14.0
    model.cancel("a")
    model.delete("a")
    assert model.space(spaced("b", throttle=5.0)) == ("a", False)
    assert model.rows == {}
    model.now = 15.0
    assert model.space(spaced("c", throttle=5.0)) == ("c", True)
    assert model.rows["c"].run_at == 15.0
