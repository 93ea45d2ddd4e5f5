"""A state machine drives the store and the reference model through the same steps and compares them.

Leases are drawn from all that were ever granted, stale ones included: that is where fencing bugs live.
What is drawn does not depend on what the store answers, which is free to choose among equals: Hypothesis runs many a
beginning twice and takes it for a mistake of ours if the second time other things are to be drawn.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import Lease, Ref
from unstuck.protocol.leases import Beat, Recovery, Share
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Outcome, completed, expired, failed, released, retried
from unstuck.stores.shared.heads import FEW
from unstuck.testing.conformance.given import counts, new, trouble
from unstuck.testing.conformance.reference import Model
from unstuck.testing.harnesses.harness import Harness

T = TypeVar("T")
# Leases and delays end in the middle of a step of time, and a point of priority is half of one: nothing ends or overtakes
# at the very moment a test looks, and a slow store may take a minute for an example before that time itself counts.
STEP = 120.0
LEASE = 6.5 * STEP
HOLD = 3.5 * STEP
DELAYS = (0.0, 0.0, 0.0, 2.5 * STEP, 9.5 * STEP)
INTERVALS = (2.5 * STEP, 9.5 * STEP)
EXPIRES = (None, None, None, 1.5 * STEP, 5.5 * STEP)
PASSING = (STEP, 4 * STEP, 10 * STEP, 10 * STEP)
EXAMPLES = int(os.environ.get("UNSTUCK_EXAMPLES", "60"))
ENDINGS = (
    "completed",
    "failed",
    "expired",
    "retried",
    "crashed",
    "released",
    "released",
    "exhausted",
    "halted",
)
OPERATIONS = ("cancel", "requeue", "requeue", "delete", "pause", "resume", "resume")
STEPS = (
    *("enqueue",) * 3,
    *("space",) * 2,
    *("lease",) * 5,
    *("settle",) * 6,
    *("heartbeat",) * 3,
    *("reclaim",) * 3,
    *("time_passes",) * 3,
    *("operate",) * 2,
    "tick",
)
LANES = (None, None, "x", "y", "z")
STANDING = ((0.0, 0.0), (0.0, 1.0), (7.0, 0.2))  # of one queue that has jobs: they decide nothing
BESIDE = tuple(
    f"machine-idle-{number}" for number in range(FEW)
)  # enough of them to be left out of the search
BACK = st.one_of(st.integers(0, 3), st.integers(0, 30))  # young leases often, old ones, too
NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)  # what the store is given for the slot of the model's now
Draw = Callable[[st.SearchStrategy[Any]], Any]


class StoreMachine(RuleBasedStateMachine):
    """One rule that draws what happens next: with a rule for each step, the interesting ones come too rarely."""

    harness: ClassVar[Harness]
    loop: ClassVar[asyncio.AbstractEventLoop]
    number = itertools.count()

    @initialize()
    def begin(self) -> None:
        self.queue = f"machine-{next(self.number)}"  # one store serves all examples, each in its own queue
        self.model = Model()
        self.leases: list[Lease] = []
        self.store = self.harness.store

    @rule(what=st.sampled_from(STEPS), data=st.data())
    def step(self, what: str, data: st.DataObject) -> None:
        getattr(self, what)(data.draw)

    def enqueue(self, draw: Draw) -> None:
        again, delay = draw(st.booleans()), draw(st.sampled_from(DELAYS))
        facts = {"priority": draw(st.sampled_from([0, 0, 1, 9])), "lane": draw(st.sampled_from(LANES))}
        facts["expires"] = draw(st.sampled_from(EXPIRES))
        jobs = [
            new(self.queue, key=key, again=again and key is not None, delay=delay, **facts)
            for key in draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=4))
        ]
        answers = self._do(self.store.enqueue(jobs))
        assert [answer.created for answer in answers] == [self.model.enqueue(job) for job in jobs]

    def space(self, draw: Draw) -> None:
        key, length = draw(st.sampled_from(["a", "b"])), draw(st.sampled_from(INTERVALS))
        facts = {"priority": draw(st.sampled_from([0, 9])), "lane": draw(st.sampled_from(LANES))}
        kind = draw(st.sampled_from([{"debounce": length, "delay": length}, {"throttle": length}]))
        job = new(self.queue, id=new_id(), key=key, **facts, **kind)
        [answer] = self._do(self.store.enqueue([job]))
        assert (answer.id, answer.created) == self.model.space(job)

    def lease(self, draw: Draw) -> None:
        limit, owner = draw(st.integers(1, 4)), draw(st.sampled_from(["ann", "bob"]))
        at_a_time, per_lane = (draw(st.sampled_from([None, None, 1, 3])) for _ in range(2))
        turn, step = draw(st.sampled_from(STANDING))
        only_new = draw(st.sampled_from([False, False, True]))
        share = Share(LEASE, limit, at_a_time, per_lane, only_new=only_new, turn=turn, step=step)
        leasable = self.model.leasable(share)
        idle = {name: Share(LEASE, limit) for name in draw(st.sampled_from([(), (), BESIDE]))}
        jobs = self._do(self.store.lease({self.queue: share, **idle}, limit, owner))
        assert len(jobs) in leasable
        for job in jobs:
            assert not share.only_new or self.model.new(self.model.rows[job.id]), "somebody had it before"
            assert self.model.room(share)[job.lane], "a lane got more than allowed"
            self.model.lease(job.lease, owner, LEASE)
            self.leases.append(job.lease)
        if per_lane is None:
            taken = [self.model.rows[job.id] for job in jobs]
            left = [row for row in self.model.due() if not share.only_new or self.model.new(row)]
            assert not any(row.before(other) for row in left for other in taken), "a job was passed over"
        elif not share.only_new:
            running = self.model.running()
            turns = [running[job.lane] - 1 for job in jobs if job.lane is not None]
            rest = [running[lane] for lane in self.model.room(share) if lane is not None]
            assert not turns or not rest or max(turns) <= min(rest), "a lane was passed over"

    def heartbeat(self, draw: Draw) -> None:
        backs = draw(_some(BACK))
        leases = list(dict.fromkeys(self._granted(back) for back in backs if self.leases))
        answer = self._do(
            self.store.heartbeat(WorkerInfo(id="nobody"), [Beat(lease, LEASE) for lease in leases])
        )
        assert answer.verdicts == {lease: self.model.beat(lease, LEASE) for lease in leases}

    def settle(self, draw: Draw) -> None:
        chosen = draw(_some(st.tuples(BACK, st.sampled_from(ENDINGS), st.sampled_from(DELAYS))))
        outcomes = [_ending(self._granted(back), kind, delay) for back, kind, delay in chosen if self.leases]
        assert self._do(self.store.settle(outcomes)) == [self.model.settle(outcome) for outcome in outcomes]

    def reclaim(self, draw: Draw) -> None:
        limit = draw(st.integers(1, 4))
        lapsed = self.model.lapsed()
        taken = self._do(self.store.reclaim(Recovery("reaper", HOLD, limit, queues=[self.queue])))
        assert len(taken.jobs) == min(limit, len(lapsed))
        for job in taken.jobs:
            self.model.reclaim(job.lease, "reaper", HOLD)
            self.leases.append(job.lease)

    def time_passes(self, draw: Draw) -> None:
        seconds = draw(st.sampled_from(PASSING))
        self._do(self.harness.age(seconds))
        self.model.now += seconds

    def operate(self, draw: Draw) -> None:
        place, what = draw(st.integers(0, 99)), draw(st.sampled_from(OPERATIONS))
        if not (ids := list(self.model.rows)):
            return
        id_ = ids[place % len(ids)]
        which = Filter(queue=self.queue, ids=(id_,))
        match what:
            case "cancel":
                assert self._do(self.store.cancel([Ref(self.queue, id_)])) == self.model.cancel(id_)
                self.model.rows[id_].fence = self._fence(id_)
            case "requeue":
                assert self._do(self.store.requeue(which)) == self.model.requeue(id_)
            case "delete":
                assert self._do(self.store.delete(which)) == self.model.delete(id_)
            case "pause":
                self._do(self.store.pause(self.queue, "the machine says so"))
                self.model.paused = "the machine says so"
            case _:
                of = self._do(counts(self.store, self.queue))
                assert (of.paused, of.halted) == (self.model.paused, self.model.halted)
                assert self._do(self.store.pause(self.queue, None)) == self.model.resume()

    def tick(self, draw: Draw) -> None:
        name = f"{self.queue}-{draw(st.sampled_from('ab'))}"
        ahead = draw(st.sampled_from([-3 * STEP, 0.0, 0.0, 3 * STEP]))
        jobs = [new(self.queue, key=key) for key in draw(st.lists(st.sampled_from([None, "a"]), max_size=2))]
        fired = self._do(self.store.tick(name, NOON + timedelta(seconds=ahead), jobs))
        assert fired == self.model.tick(name, self.model.now + ahead, jobs)

    @invariant()
    def store_and_model_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        jobs = self._do(self.store.find(Filter(queue=self.queue), 1000)).jobs
        stored = {job.id: (job.status, job.attempts, job.crashes, job.fence, job.owner) for job in jobs}
        rows = self.model.rows.items()
        assert stored == {
            id_: (row.status, row.attempts, row.crashes, row.fence, row.owner) for id_, row in rows
        }
        for job in jobs:
            assert 0 <= job.crashes <= job.attempts
        slots = self._do(self.store.fleet()).slots
        assert {name: slot for name, slot in slots.items() if name.startswith(f"{self.queue}-")} == {
            name: NOON + timedelta(seconds=slot - self.model.now) for name, slot in self.model.slots.items()
        }

    def _granted(self, back: int) -> Lease:
        """The youngest of all leases ever granted, or one that was granted so many before it."""
        return self.leases[max(len(self.leases) - 1 - back, 0)]

    def _fence(self, id_: str) -> int:
        [job] = self._do(self.store.find(Filter(queue=self.queue, ids=(id_,)))).jobs
        assert job.fence >= self.model.rows[id_].fence
        return job.fence

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


def _some(each: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    return st.lists(each, min_size=1, max_size=4)


def _ending(lease: Lease, kind: str, delay: float) -> Outcome:
    match kind:
        case "completed":
            return completed(lease)
        case "failed":
            return failed(lease, trouble())
        case "expired":
            return expired(lease, trouble())
        case "retried":
            return retried(lease, trouble(), delay)
        case "crashed":
            return retried(lease, trouble(), delay, crashed=True)
        case "halted":
            return failed(lease, trouble(), halt="the machine is broken")
        case "exhausted":
            return released(lease, delay, pause="the quota is exhausted")
        case _:
            return released(lease, delay)


@pytest.mark.timeout(1800)  # Neo4j takes a minute, on a busy machine many
async def test_a_store_behaves_as_the_reference_model(harness: Harness) -> None:
    StoreMachine.harness = harness
    StoreMachine.loop = asyncio.get_running_loop()
    how = settings(
        max_examples=EXAMPLES,
        stateful_step_count=40,
        deadline=None,
        derandomize=os.environ.get("CI") == "true",
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    await asyncio.to_thread(run_state_machine_as_test, StoreMachine, settings=how)
