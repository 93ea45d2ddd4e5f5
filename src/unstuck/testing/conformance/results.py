"""Results that not every store could keep: the job fails with a code that says so, and the worker goes on."""

from __future__ import annotations

import pytest

from unstuck.app.app import Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Category, Status
from unstuck.protocol.operators import Filter
from unstuck.testing.harnesses.harness import Harness
from unstuck.worker.worker import Worker

RESULTS = {
    "NUL": ("a\0b", "contains the NUL character"),
    "NUL in a key": ({"a\0": 1}, "contains the NUL character"),
    "half a surrogate pair": ("\ud800", "half a surrogate pair"),
    "half a pair in a key": ({"\udfff": 1}, "half a surrogate pair"),
}


@pytest.mark.parametrize("which", RESULTS)
async def test_a_result_that_no_store_can_keep_fails_its_job_with_a_clear_code(
    harness: Harness, which: str
) -> None:
    odd_result, why = RESULTS[which]
    async with Unstuck(harness.url) as app:

        @app.task(queue="odd")
        async def odd(n: int) -> object:
            return odd_result if n == 0 else f"✓ {n}\n\x01"

        await app.enqueue_many([odd.call(n) for n in range(3)])
        await Worker(app, burst=True).run()

    jobs = {job.payload["n"]: job for job in (await harness.store.find(Filter(queue="odd"))).jobs}
    assert [jobs[n].result for n in range(3)] == [None, "✓ 1\n\x01", "✓ 2\n\x01"]
    assert (jobs[0].status, jobs[0].attempts) == (Status.FAILED, 1)
    error = jobs[0].error
    assert error is not None
    assert (error.category, error.code) == (Category.PERMANENT, "invalid_result")
    assert why in error.message
    assert await broken_rules(harness.store) == []
