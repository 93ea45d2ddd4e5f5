"""What explain says leads to the cause, and to what can be done about it."""

import re
from typing import Any

import pytest

import unstuck
from unstuck import Jobs, Unstuck
from unstuck.operations.explain import LATEST, explain
from unstuck.protocol.classify import failure
from unstuck.protocol.fleet import Health, WorkerInfo
from unstuck.protocol.job import Category, NewJob, Ref, Status
from unstuck.protocol.leases import Beat, Recovery, Share
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed, failed, released, retried
from unstuck.protocol.retry import crash_fate
from unstuck.protocol.store import Store
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased, trouble

pytestmark = pytest.mark.anyio


async def why(store: Store, ref: Ref) -> str:
    return await explain(store, await look(store, ref))


async def alive(store: Store, id_: str = "w", queues: tuple[str, ...] = ("q",), **facts: object) -> None:
    worker = WorkerInfo(id=id_, queues=queues, tasks=("task",), concurrency=5, **facts)  # type: ignore[arg-type]
    await store.heartbeat(worker, [])


async def lost(harness: SQLiteHarness, times: int, **facts: Any) -> Ref:
    """A job whose holders fell silent so many times."""
    [ref] = await enqueued(harness.store, **facts)
    for _ in range(times):
        await leased(harness.store)
        await harness.age(61)
        [taken] = (await harness.store.reclaim(Recovery("reaper", 30.0, 10))).jobs
        await harness.store.settle([crash_fate(taken, trouble())])
    return ref


async def test_a_holder_that_fell_silent_within_a_long_lease_is_not_shown_as_running(
    harness: SQLiteHarness,
) -> None:
    job = await one_leased(harness.store, seconds=7200.0, owner="frozen")
    await alive(harness.store, "frozen")
    await harness.store.heartbeat(WorkerInfo(id="frozen"), [Beat(job.lease, 7200.0, stage="render")])
    assert re.match(
        r"It is running, for \d+(\.\d)? s so far: held by frozen for another ",
        await why(harness.store, job.ref),
    )

    await harness.age(3000)
    await alive(harness.store, "other")

    told = await why(harness.store, job.ref)
    assert told.startswith(
        "It is held by frozen, which sent its last heartbeat 50 min ago: it is dead or frozen. Its lease"
    )
    assert "(stage render) lasts for another 70 min, then it runs again" in told
    assert told.endswith(f"unstuck release {job.id} --owner frozen")


async def test_a_lease_that_only_a_reaper_gave_is_shown_as_such(harness: SQLiteHarness) -> None:
    job = await one_leased(harness.store, owner="gone")
    await harness.forget_lease(job.ref)
    await harness.age(4000)
    await harness.store.reclaim(Recovery("reaper", 30.0, 10))

    told = await why(harness.store, job.ref)

    assert told.startswith(
        "It is held by gone, which set no lease and sends no heartbeats; a reaper gave it one."
    )
    assert told.endswith(f"unstuck release {job.id} --owner gone")


@pytest.mark.parametrize(
    ("recovering", "end"),
    [
        (True, "; the next reaper will take it back."),
        (False, ", and nobody takes it back: no worker that is alive recovers. Now: unstuck reap --once"),
        (None, ", and nobody takes it back: no worker is alive. Now: unstuck reap --once"),
    ],
)
async def test_a_lease_that_ran_out_long_ago_is_promised_to_nobody_who_is_not_there(
    harness: SQLiteHarness, recovering: bool | None, end: str
) -> None:
    job = await one_leased(harness.store, owner="gone")
    await harness.age(60 + 1500)
    if recovering is not None:
        await alive(harness.store, health=Health(recovering=recovering))

    assert await why(harness.store, job.ref) == f"Its lease by gone ran out 25 min ago{end}"


async def test_a_job_that_kills_its_workers_is_suspected(harness: SQLiteHarness) -> None:
    ref = await lost(harness, 2, max_attempts=9)

    told = await why(harness.store, ref)

    assert "died or fell silent 2 times while they ran it, and it has 7 attempts left" in told
    assert told.endswith(f"unstuck cancel {ref.id} --queue q")


async def test_a_queue_that_is_misspelt_somewhere_is_named(harness: SQLiteHarness) -> None:
    [ref] = await enqueued(harness.store, queue="thumbnails")
    await alive(harness.store, queues=("mail", "thumbnail"))

    told = await why(harness.store, ref)

    assert told.endswith("Those alive take mail, thumbnail: is one of the names misspelt?")


async def test_a_task_that_nobody_knows_is_reported_also_while_it_waits_for_its_next_turn(
    harness: SQLiteHarness,
) -> None:
    [answer] = await harness.store.enqueue([NewJob(queue="q", task="tasks", id="a", delay=30)])
    ref = answer.ref
    await alive(harness.store)

    told = await why(harness.store, ref)

    assert told.startswith(
        "Task 'tasks' is unknown to every worker of queue 'q', which give it back each time"
    )
    assert told.endswith("(did you mean 'task'?).")


async def test_a_full_lane_is_named_with_those_that_fill_it(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 3, lane="acme")
    running = await harness.store.lease({"q": Share(60.0, 9, per_lane=2)}, 9, "w")
    await alive(harness.store, limits={"q": {"lane_limit": 2}})
    [waiting] = [job.ref for job in (await harness.store.find(Filter(status=Status.PENDING))).jobs]

    told = await why(harness.store, waiting)

    assert told.startswith("Lane 'acme' of queue 'q' has its 2 running. If they hang: unstuck cancel ")
    assert all(job.id in told for job in running)


async def test_a_key_that_a_finished_job_keeps_is_reported(harness: SQLiteHarness) -> None:
    for key, end in (("october", completed), ("november", lambda lease: failed(lease, trouble()))):
        job = await one_leased(harness.store, key=key)
        await harness.store.settle([end(job.lease)])
        told = await why(harness.store, job.ref)
        assert f"Its key {key!r} stays taken: enqueueing it again changes nothing" in told
        assert f"unstuck enqueue task '{{…}}' --key {key} --again --queue q." in told
    assert told.endswith(f"When the cause is fixed, to run it as it is: unstuck retry {job.id} --queue q")


async def test_the_key_of_a_spaced_job_does_not_stay_taken(harness: SQLiteHarness) -> None:
    job = await one_leased(harness.store, key="k", id="spaced", throttle=60.0)
    await harness.store.settle([completed(job.lease)])
    assert re.fullmatch(r"It completed .*ago\.", await why(harness.store, job.ref))


async def test_a_job_that_nobody_takes_although_there_is_room_leads_to_the_doctor(
    harness: SQLiteHarness,
) -> None:
    [ref] = await enqueued(harness.store)
    await alive(harness.store, running=5)
    assert await why(harness.store, ref) == "It is the next of queue 'q' and waits for a free worker."
    await harness.age(10)
    assert await why(harness.store, ref) == "It is the next of queue 'q' and waits for a free worker."

    await alive(harness.store, running=4)

    assert "workers have room, yet nobody takes it" in await why(harness.store, ref)


async def test_a_rate_shows_how_long_all_of_them_will_take(harness: SQLiteHarness) -> None:
    refs = await enqueued(harness.store, 100)
    await alive(harness.store, limits={"q": {"rate": {"count": 5, "per": 60, "bucket": None}}})
    await harness.store.take("q", 5, 5, 60.0)

    told = await why(harness.store, refs[0])

    assert told.startswith("Queue 'q' is rate limited (5 in 60 s) for another ")
    assert told.endswith("its 100 due jobs will take about 20 min, however many workers there are.")


async def send(to: str) -> str:
    return to


def fail() -> None:
    raise unstuck.Permanent("no such entity", code="missing")


async def test_explain_names_what_a_due_job_waits_for(app: Unstuck, harness: SQLiteHarness) -> None:
    task, jobs = app.task(queue="mail")(send), await app.jobs()
    handle = await task.enqueue("ann")
    told = [await handle.explain()]

    await harness.store.heartbeat(WorkerInfo(id="w", queues=("mail",), tasks=("add",)), [])
    told.append(await handle.explain())
    await harness.store.heartbeat(WorkerInfo(id="w", queues=("mail",), tasks=("send",)), [])
    second = await task.enqueue("bob")
    told.append(await handle.explain())
    told.append(await second.explain())
    await harness.age(61)
    told.append(await handle.explain())
    await jobs.pause("mail", "the printer is on fire")
    told.append(await handle.explain())

    assert told == [
        "No worker takes queue 'mail': start one that does. No worker is alive at all: one that was started has ended, or never reached this store. See its output.",
        "Task 'send' is unknown to every worker of queue 'mail', which give it back each time: deploy its code to them (they know add).",
        "It is the next of queue 'mail' and waits for a free worker.",
        "It waits behind 1 other due job of queue 'mail'.",
        "No worker takes queue 'mail': start one that does. No worker is alive at all: one that was started has ended, or never reached this store. See its output.",
        "Queue 'mail' is paused: the printer is on fire. When that is fixed: unstuck resume mail",
    ]


async def test_explain_shows_whether_a_queue_is_halted_or_paused_or_both(harness: SQLiteHarness) -> None:
    job = await one_leased(harness.store)
    [ref] = await enqueued(harness.store)
    await harness.store.settle([failed(job.lease, trouble(Category.CRITICAL), halt="CRITICAL: disk gone")])
    told = [await why(harness.store, ref)]

    await harness.store.pause("q", "CRITICAL fix is being deployed")
    told.append(await why(harness.store, ref))
    await harness.store.pause("q", None)
    await harness.store.pause("q", "CRITICAL fix is being deployed")
    told.append(await why(harness.store, ref))

    assert [line.partition(". When")[0] for line in told] == [
        "Queue 'q' is halted: CRITICAL: disk gone",
        "Queue 'q' is halted: CRITICAL: disk gone; paused: CRITICAL fix is being deployed",
        "Queue 'q' is paused: CRITICAL fix is being deployed",
    ]


async def test_explain_shows_when_a_job_is_due_and_whether_it_failed_before(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    task = app.task(send)
    new, tried = await task.options(delay=60).enqueue("ann"), await task.enqueue("bob")
    [job] = await harness.store.lease({"default": Share(20.0, 1)}, 1, "w")
    await harness.store.settle([retried(job.lease, failure(TimeoutError()), 60.0)])

    due = r"It is due in (60|5\d) s, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(
        due
        + rf", and was enqueued \d\.\d s ago\. Sooner: unstuck edit {new.id} --run-at now --queue default",
        await new.explain(),
    )
    assert re.match(due + r" \(attempt 1 failed: timeout: .*\)\. Sooner", await tried.explain())


async def test_explain_names_who_holds_a_job(app: Unstuck, harness: SQLiteHarness) -> None:
    handle = await app.task(send).enqueue("ann")
    await harness.store.lease({"default": Share(20.0, 1)}, 1, "w")

    running = await handle.explain()
    await harness.age(60)
    silent = await handle.explain()
    await harness.forget_lease(handle.ref)

    assert re.fullmatch(
        r"It is running, for \d\.\d s so far: held by w for another (20|1\d) s unless renewed\.", running
    )
    assert re.fullmatch(r"Its lease by w ran out 4\d s ago; the next reaper will take it back\.", silent)
    held = await handle.explain()
    assert re.match(r"It is held by w since 6\d s, which sets no lease\. A reaper gives it one when ", held)
    assert held.endswith(f"unstuck release {handle.id} --owner w")


async def test_explain_shows_how_a_job_ended(app: Unstuck, harness: SQLiteHarness) -> None:
    done, failed = await app.task(send).enqueue("ann"), await app.task(fail).enqueue()
    await unstuck.Worker(app, burst=True).run()
    await harness.age(3600)

    why = r"It failed 60 min ago after 1 of 3 attempts \(missing: no such entity\)\."
    assert await done.explain() == "It completed 60 min ago."
    assert re.fullmatch(
        why + r" It would fail again, unless what the error says is fixed; then, to run it as it is: "
        rf"unstuck retry {failed.id} --queue default",
        await failed.explain(),
    )


async def test_a_stranger_that_has_jobs_of_the_queue_in_hand_is_named(harness: SQLiteHarness) -> None:
    job = await one_leased(harness.store, owner="shrinker")
    await harness.forget_lease(job.ref)
    [waiting] = await enqueued(harness.store)
    await harness.age(120)

    told = await why(harness.store, waiting)

    assert told.startswith(
        f"No worker of ours takes queue 'q', but shrinker, which is none, has job {job.id} of it in hand"
    )
    assert "since 2 min" in told


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        (10, "fell silent 4 times while they ran it, and after 10 it fails for good: "),
        (4, " after 0 of 3 attempts and 4 crashes (trouble: "),
    ],
)
async def test_a_job_with_a_budget_of_crashes_is_judged_by_that(
    harness: SQLiteHarness, budget: int, told: str
) -> None:
    ref = await lost(harness, 4, max_attempts=3, max_crashes=budget)

    assert told in await why(harness.store, ref)


@pytest.mark.parametrize(
    ("attempts", "end"), [(2, "then it runs again."), (1, "then it fails for good: it has no attempt left.")]
)
async def test_what_follows_a_silent_holders_lease_is_what_a_reaper_will_do(
    harness: SQLiteHarness, attempts: int, end: str
) -> None:
    job = await one_leased(harness.store, seconds=7200.0, owner="frozen", max_attempts=attempts)
    await harness.age(600)
    assert "min, then somebody has to recover it (unstuck reap --once): " + end in await why(
        harness.store, job.ref
    )

    await alive(harness.store)

    assert f"lasts for another 110 min, {end} Sooner" in await why(harness.store, job.ref)


async def test_only_who_beats_now_is_left_alone_by_reapers(harness: SQLiteHarness) -> None:
    """As in a table of others, whose workers may beat and renew nothing."""
    job = await one_leased(harness.store, owner="w")
    await harness.age(3600)
    harness.rows("UPDATE job SET heartbeat_at = heartbeat_at + 3595000")
    told = await why(harness.store, job.ref)
    assert re.search(r"it sent a heartbeat ([5-9]\.\d|[1-5]\d) s ago: ", told)
    assert "while it does, reapers leave it alone. If it hangs, stop that process." in told

    await harness.age(600)

    assert (await why(harness.store, job.ref)).endswith("Now: unstuck reap --once")


async def test_a_holder_without_a_name_is_shown_as_such(harness: SQLiteHarness) -> None:
    job = await one_leased(harness.store)
    harness.rows("UPDATE job SET owner = ''")

    assert ": held by a worker without a name for " in await why(harness.store, job.ref)


async def test_what_is_to_be_typed_can_be_pasted_into_a_shell(harness: SQLiteHarness) -> None:
    await harness.store.enqueue([NewJob(queue="q", task="task", id="1; reboot", delay=60.0)])

    assert (await why(harness.store, Ref("q", "1; reboot"))).endswith(
        "Sooner: unstuck edit '1; reboot' --run-at now --queue q"
    )


async def test_a_long_history_does_not_hide_its_end(harness: SQLiteHarness) -> None:
    [ref] = await enqueued(harness.store)
    for _ in range(LATEST + 1):
        [job] = await leased(harness.store)
        await harness.store.settle([released(job.lease, 0.0)])
    await leased(harness.store)
    await harness.forget_lease(ref)
    await harness.age(4000)
    await harness.store.reclaim(Recovery("reaper", 30.0, 10))

    history = await Jobs(harness.store).history(ref)

    assert (len(history), history[-1].type) == (LATEST, "reaper:adopted")
    assert "a reaper gave it one" in await why(harness.store, ref)


async def test_a_job_whose_record_could_not_be_read_is_not_to_be_run_as_it_is(harness: SQLiteHarness) -> None:
    [ref] = await enqueued(harness.store)
    harness.rows("UPDATE job SET payload = '{oops'")
    assert await leased(harness.store) == []

    assert (await why(harness.store, ref)).endswith("Running it as it is would not help: enqueue it again.")


async def test_workers_that_take_nothing_are_named_with_what_they_report(harness: SQLiteHarness) -> None:
    _, ref = await enqueued(harness.store, 2)
    blocked = Health(status="DEGRADED", why="it has not asked for work for 829 s", consuming=False)
    await alive(harness.store, "stuck", health=blocked)

    told = await why(harness.store, ref)
    assert told.startswith(
        "No worker of queue 'q' takes anything now (stuck is DEGRADED: it has not asked for"
    )
    assert told.endswith("what they run: unstuck jobs --status processing --queue q")

    await alive(harness.store, "well")
    assert await why(harness.store, ref) == "It waits behind 1 other due job of queue 'q'."


async def test_a_full_queue_shows_how_many_stand_before_a_job(harness: SQLiteHarness) -> None:
    await one_leased(harness.store)
    *_, last = await enqueued(harness.store, 3)
    await alive(harness.store, limits={"q": {"limit": 1}})

    assert (await why(harness.store, last)).endswith("so many are running. 2 due jobs stand before it.")
