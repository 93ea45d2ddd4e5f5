"""What operators do: find, count, requeue, delete, cancel, pause."""

from __future__ import annotations

import pytest

from unstuck.errors import ConfigError
from unstuck.jobs import Jobs
from unstuck.model import Beat, Filter, Job, Status, Verdict, Worker, completed, failed, released, retried
from unstuck.store import Store
from unstuck.testing.conformance.given import counts, enqueued, leased, look, new, one_leased, states, trouble
from unstuck.testing.harness import Harness


async def one_of_each(store: Store) -> dict[Status, str]:
    """One job in each state, by id."""
    await enqueued(store, 3)
    done, dead, running = await leased(store, 3)
    await store.settle([completed(done.lease, 1), failed(dead.lease, trouble())])
    [waiting] = await enqueued(store)
    return {
        Status.PENDING: waiting.id,
        Status.PROCESSING: running.id,
        Status.COMPLETED: done.id,
        Status.FAILED: dead.id,
    }


@pytest.mark.accepts("REC-067", "MQ-041", "EMB-154")
async def test_jobs_are_counted_and_found_by_state(harness: Harness) -> None:
    ids = await one_of_each(harness.store)

    for status, id_ in ids.items():
        assert [job.id for job in (await harness.store.find(Filter(status=status))).jobs] == [id_]
    assert await Jobs(harness.store).get_queue_status() == {str(status): 1 for status in Status}
    assert [str(status) for status in Status] == ["pending", "processing", "completed", "failed"]


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


@pytest.mark.accepts("EMB-149", "EMB-160")
async def test_failed_jobs_can_be_put_back_with_fresh_attempts(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=1)
    await harness.store.settle([failed(job.lease, trouble(), crashed=True)])

    assert await Jobs(harness.store).retry_failed_jobs() == 1

    stored = await look(harness.store, job.ref)
    assert (stored.status, stored.attempts, stored.crashes) == (Status.PENDING, 0, 0)
    [again] = await leased(harness.store)
    assert again.fence > job.fence


async def test_requeue_touches_finished_jobs_only(harness: Harness) -> None:
    await one_of_each(harness.store)

    assert await harness.store.requeue(Filter()) == 2
    assert await states(harness.store) == {"pending": 3, "processing": 1}


async def test_delete_touches_finished_jobs_only(harness: Harness) -> None:
    await one_of_each(harness.store)

    assert await harness.store.delete(Filter()) == 2
    assert await states(harness.store) == {"pending": 1, "processing": 1}


@pytest.mark.accepts("EMB-024", "EMB-025", "EMB-037")
async def test_cleanup_deletes_what_finished_before_the_retention_period(harness: Harness) -> None:
    await one_of_each(harness.store)
    await harness.age(13.9 * 86400)
    assert await Jobs(harness.store).cleanup_jobs() == 0

    await harness.age(0.2 * 86400)
    assert await Jobs(harness.store).cleanup_jobs() == 2
    assert await states(harness.store) == {"pending": 1, "processing": 1}


@pytest.mark.accepts("EMB-026", "EMB-027")
async def test_cleanup_never_touches_unfinished_jobs_of_any_age(harness: Harness) -> None:
    ids = await one_of_each(harness.store)
    await harness.age(10_000 * 86400)

    await Jobs(harness.store).cleanup_jobs(days=0)

    left = {job.id for job in (await harness.store.find(Filter())).jobs}
    assert left == {ids[Status.PENDING], ids[Status.PROCESSING]}


@pytest.mark.accepts("EMB-159")
async def test_cleanup_by_an_age_of_seven_days_keeps_the_queue_from_growing(harness: Harness) -> None:
    for _ in range(5):
        job = await one_leased(harness.store)
        await harness.store.settle([completed(job.lease)])
        await harness.age(3.6 * 86400)
        await Jobs(harness.store).cleanup_jobs(days=7)

    assert (await counts(harness.store)).completed == 1


@pytest.mark.accepts("EMB-156")
async def test_failed_jobs_are_kept_until_they_are_cleaned_up(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([failed(job.lease, trouble())])
    await harness.age(13 * 86400)
    await Jobs(harness.store).cleanup_jobs(days=14)

    stored = await look(harness.store, job.ref)
    assert stored.error is not None
    assert stored.error.message == "it did not work"


async def test_events_die_with_their_job(harness: Harness) -> None:
    gone = await one_leased(harness.store)
    kept = await one_leased(harness.store)
    await harness.store.settle([failed(gone.lease, trouble()), failed(kept.lease, trouble())])

    assert await harness.store.delete(Filter(ids=(gone.id,))) == 1

    assert await harness.store.events(job=gone.ref) == []
    assert [event.type for event in await harness.store.events(job=kept.ref)] == ["failed", "alert"]


async def test_a_deleted_key_is_free_again(harness: Harness) -> None:
    job = await one_leased(harness.store, key="k")
    await harness.store.settle([completed(job.lease)])
    await harness.store.delete(Filter(key="k"))

    [answer] = await harness.store.enqueue([new(key="k")])
    assert answer.created


async def test_many_jobs_are_handled_in_bounded_steps(harness: Harness) -> None:
    await enqueued(harness.store, 30)
    jobs = await leased(harness.store, 30)
    await harness.store.settle([completed(job.lease) for job in jobs[:15]])
    await harness.store.settle([failed(job.lease, trouble()) for job in jobs[15:]])

    assert await harness.store.delete(Filter(), 20) == 20
    assert await harness.store.requeue(Filter(), 4) == 4
    of = await states(harness.store)
    assert (of.pop("pending"), sum(of.values())) == (4, 6)


async def test_a_cancelled_job_is_failed_but_no_dead_letter(harness: Harness) -> None:
    [waiting] = await enqueued(harness.store)

    assert await harness.store.cancel([waiting]) == 1

    stored = await look(harness.store, waiting)
    assert stored.status is Status.FAILED
    assert stored.cancelled
    assert not stored.dead
    assert stored.error is not None
    assert stored.error.code == "cancelled"
    assert (await harness.store.find(Filter(dead=True))).jobs == []
    assert await Jobs(harness.store).retry_failed_jobs() == 0
    assert (await counts(harness.store)).cancelled == 1
    assert await leased(harness.store) == []


async def test_cancelling_a_running_job_takes_its_lease(harness: Harness) -> None:
    job = await one_leased(harness.store)

    assert await harness.store.cancel([job.ref]) == 1

    answer = await harness.store.heartbeat(Worker(id="w"), [Beat(job.lease, 60.0)])
    assert answer.verdicts == {job.lease: Verdict.CANCELLED}
    assert [str(one) for one in await harness.store.settle([completed(job.lease, "late")])] == ["lost"]
    stored = await look(harness.store, job.ref)
    assert (stored.status, stored.result, stored.owner) == (Status.FAILED, None, None)
    assert stored.fence > job.fence
    assert await states(harness.store) == {"failed": 1}


async def test_cancelling_what_is_finished_or_unknown_does_nothing(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease)])

    assert await harness.store.cancel([job.ref, job.ref._replace(id="unknown")]) == 0
    assert await harness.store.cancel([]) == 0
    assert (await look(harness.store, job.ref)).status is Status.COMPLETED


async def test_a_paused_queue_is_not_leased_until_it_is_resumed(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    await enqueued(harness.store, 1, queue="other")
    await harness.store.pause("q", "the provider is down")

    assert await leased(await harness.another(), 5) == []
    assert len(await leased(harness.store, 5, queue="other")) == 1
    assert (await counts(harness.store)).paused == "the provider is down"

    assert await harness.store.resume("q") is True
    assert await harness.store.resume("q") is False
    assert len(await leased(harness.store, 5)) == 2


async def test_a_second_pause_takes_the_new_reason(harness: Harness) -> None:
    job = await one_leased(harness.store)
    for why in ("first", "second"):
        await harness.store.pause("q", why)
        assert (await counts(harness.store)).paused == why

    await harness.store.settle([released(job.lease, pause="third")])

    assert (await counts(harness.store)).paused == "third"
    assert [event.data["details"] for event in await harness.store.events() if event.type == "paused"] == [
        {"why": why} for why in ("first", "second", "third")
    ]


async def test_a_queue_that_was_resumed_can_be_paused_again_for_another_reason(harness: Harness) -> None:
    await enqueued(harness.store)
    await harness.store.pause("q", "the provider is down")
    await harness.store.resume("q")
    assert (await counts(harness.store)).paused is None

    await harness.store.pause("q", "no money")
    await harness.store.pause("q", "no time")

    assert await leased(harness.store) == []
    assert (await counts(harness.store)).paused == "no time"


async def test_an_empty_queue_is_listed_while_it_is_paused(harness: Harness) -> None:
    await harness.store.pause("q", "for a while")
    assert [of.queue for of in await harness.store.count()] == ["q"]

    await harness.store.resume("q")
    assert await harness.store.count() == []


async def test_a_pause_does_not_touch_what_runs(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.pause("q", "for a while")

    assert [str(one) for one in await harness.store.settle([retried(job.lease, trouble(), 0.0)])] == [
        "applied"
    ]
    assert await leased(harness.store) == []


async def test_counts_tell_delayed_expired_and_recovered_apart(harness: Harness) -> None:
    await enqueued(harness.store, 1, delay=3600.0)
    job = await one_leased(harness.store, seconds=10.0)
    assert (await counts(harness.store)).expired == 0
    await one_leased(harness.store, seconds=600.0)
    await harness.age(60)

    of = await counts(harness.store)
    assert (of.pending, of.delayed, of.processing, of.expired) == (1, 1, 2, 1)
    await harness.store.settle([released(job.lease)])
    of = await counts(harness.store)
    assert (of.pending, of.delayed, of.processing, of.expired) == (2, 1, 1, 0)


async def test_migrate_may_be_repeated(harness: Harness) -> None:
    await enqueued(harness.store)
    await harness.store.migrate()
    await (await harness.another()).migrate()

    assert await states(harness.store) == {"pending": 1}


async def test_the_clock_is_the_stores(harness: Harness) -> None:
    first = await harness.store.clock()
    second = await harness.store.clock()

    assert first.now <= second.now
    assert first.now.tzinfo is not None
    assert second.uptime > 0
