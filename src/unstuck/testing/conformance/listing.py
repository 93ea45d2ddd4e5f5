"""find: which jobs a filter means, in which order, and in pages."""

from __future__ import annotations

import pytest

from unstuck.operations.jobs import Jobs
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Job, Status
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed, failed
from unstuck.testing.conformance.given import enqueued, leased, new, one_leased, one_of_each, trouble
from unstuck.testing.harnesses.harness import Harness


@pytest.mark.accepts("REC-067", "MQ-041", "EMB-154")
async def test_jobs_are_counted_and_found_by_state(harness: Harness) -> None:
    ids = await one_of_each(harness.store)

    for status, id_ in ids.items():
        assert [job.id for job in (await harness.store.find(Filter(status=status))).jobs] == [id_]
        assert (await Jobs(harness.store).get(id_)).status is status
    await enqueued(harness.store, 6)
    one, *others = await leased(harness.store, 5)
    await harness.store.settle([failed(one.lease, trouble())])
    await harness.store.settle([completed(job.lease) for job in others[:2]])
    expected = {"pending": 2, "processing": 3, "completed": 3, "failed": 2}
    assert await Jobs(harness.store).get_queue_status() == expected


@pytest.mark.parametrize("status", [None, Status.PENDING, Status.COMPLETED])
async def test_pages_are_newest_first_complete_and_without_repetition(
    harness: Harness, status: Status | None
) -> None:
    refs = await enqueued(harness.store, 25)
    if status is Status.COMPLETED:  # some in the same moment, some earlier
        for _ in range(5):
            await harness.store.settle([completed(job.lease) for job in await leased(harness.store, 5)])
            await harness.age(10)

    seen: list[Job] = []
    cursor = None
    while True:
        page = await harness.store.find(Filter(status=status), 10, cursor)
        assert len(page.jobs) <= 10
        seen += page.jobs
        assert len(seen) <= len(refs), "a page came twice"
        if (cursor := page.cursor) is None:
            break
    assert sorted(job.ref for job in seen) == sorted(refs)
    if status is Status.COMPLETED:
        ended = [job.finished_at for job in seen if job.finished_at is not None]
        assert ended == sorted(ended, reverse=True)
        assert len(set(ended)) >= 5
    else:
        assert [job.ref for job in seen] == refs[::-1]


async def test_finished_jobs_are_listed_by_their_end(harness: Harness) -> None:
    await enqueued(harness.store, 3)
    first, second, third = await leased(harness.store, 3)
    for job in (second, third, first):
        await harness.store.settle([failed(job.lease, trouble())])
        await harness.age(1)

    newest = [first.id, third.id, second.id]
    for which in (Filter(status=Status.FAILED), Filter(dead=True)):
        page = await harness.store.find(which, 2)
        rest = await harness.store.find(which, 2, page.cursor)
        assert [job.id for job in page.jobs + rest.jobs] == newest


@pytest.mark.parametrize("status", [None, Status.PENDING])
async def test_a_job_that_was_started_over_is_listed_as_the_newest(
    harness: Harness, status: Status | None
) -> None:
    job = await one_leased(harness.store, key="k")
    await harness.store.settle([completed(job.lease)])
    others = await enqueued(harness.store, 3)

    await harness.store.enqueue([new(key="k", again=True)])
    later = await enqueued(harness.store, 1)

    first = await harness.store.find(Filter(status=status), 2)
    rest = await harness.store.find(Filter(status=status), 5, first.cursor)
    listed = first.jobs + rest.jobs
    assert [one.ref for one in listed] == [*later, job.ref, *others[::-1]]
    assert [one.created_at for one in listed] == sorted((one.created_at for one in listed), reverse=True)


@pytest.mark.parametrize("cursor", ["", "x", "1.2.3", "-", "1" * 99])
async def test_a_cursor_of_something_else_is_refused(harness: Harness, cursor: str) -> None:
    with pytest.raises(ConfigError, match="cursor"):
        await harness.store.find(Filter(), 2, cursor)


async def test_every_field_of_a_filter_narrows(harness: Harness) -> None:
    await harness.store.enqueue([new("a", key="k1"), new("a", key="k2"), new("b", key="k1")])
    await leased(harness.store, 1, queue="b", owner="me")

    async def found(**facts: object) -> int:
        return len((await harness.store.find(Filter(**facts))).jobs)  # type: ignore[arg-type]

    assert await found() == 3
    assert await found(queue="a") == 2
    assert await found(key="k1") == 2
    assert await found(queue="a", key="k1") == 1
    assert await found(task="task") == 3
    assert await found(task="other") == 0
    assert await found(owner="me") == 1
    assert await found(ids=()) == 0
    assert await found(queue="' OR 1=1 --") == 0
