"""HeldLeases: answers to lease calls that come so late that the heartbeat gives the leases back."""

import asyncio
import time

import pytest

from unstuck.config.policy import Policy
from unstuck.protocol.job import Job
from unstuck.testing.conformance.given import enqueued, leased
from unstuck.testing.harnesses.sqlite import SQLiteHarness
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.outbox import Outbox

pytestmark = pytest.mark.anyio


def nothing(harness: SQLiteHarness) -> HeldLeases:
    return HeldLeases("w", Outbox(harness.store), asyncio.Event())


def take(held: HeldLeases, *jobs: Job) -> None:
    policies = {job.queue: Policy() for job in jobs}
    held.take(jobs, policies, time.monotonic(), first=(), listener=lambda *_: None)


async def test_a_lease_that_was_given_back_is_dropped_when_its_answer_comes(
    harness: SQLiteHarness,
) -> None:
    held = nothing(harness)
    await enqueued(harness.store, 2)
    late, other = await leased(harness.store, 2)

    assert held.disown({late.lease}) == [late.lease]
    take(held, late, other)

    assert [one.lease for one in held.waiting] == [one.lease for one in held.all()] == [other.lease]


async def test_a_lease_whose_answer_comes_at_that_very_moment_is_kept_and_not_given_back(
    harness: SQLiteHarness,
) -> None:
    held = nothing(harness)
    await enqueued(harness.store, 2)
    started, other = await leased(harness.store, 2)
    take(held, started)
    held.waiting.clear()  # it has been started

    assert held.disown({started.lease}) == []
    take(held, other)

    assert {one.lease for one in held.all()} == {started.lease, other.lease}
