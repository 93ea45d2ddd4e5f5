"""Creating entities is local work of milliseconds: no provider, no waiting for a worker, and a job for each version."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support_memory.conformance.given import new
from support_memory.jobs import Recorded
from unstuck_memory.graphs.sqlite.threads import Threads
from unstuck_memory.memory import Memory

pytestmark = pytest.mark.anyio


def waited() -> float:
    """The seconds that this thread could have run, but others had the processors."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that each writing transaction takes, from asking for the lock to the commit."""
    taken: list[float] = []
    write: Callable[..., Any] = Threads._write

    def timed(self: Threads, step: Any) -> Any:
        began = time.perf_counter() - waited()
        try:
            return write(self, step)
        finally:
            taken.append(time.perf_counter() - waited() - began)

    monkeypatch.setattr(Threads, "_write", timed)
    return taken


@pytest.mark.accepts("EMB-050", "EMB-052", "EMB-053")
async def test_fifty_creates_of_fifty_entities_at_once_hold_the_lock_for_milliseconds_each(
    memory: Memory, jobs: Recorded, transactions: list[float]
) -> None:
    written = await asyncio.gather(*(
        memory.create_entities([new(f"{call} {number}", f"is {number}") for number in range(50)])
        for call in range(50)
    ))  # fmt: skip

    assert all(change.created for answer in written for change in answer.changes)
    assert len(transactions) == 50
    assert max(transactions) < 0.1
    assert sorted(jobs.taken()) == sorted(
        (f"{call} {number}", 1) for call in range(50) for number in range(50)
    )
