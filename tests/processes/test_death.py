"""Who dies, who notices, how soon, and what is left over."""

import os
import signal
import time

import pytest
from support.kin import alive, kin, processes
from support.processes import Child
from support.waiting import until, until_async
from support.workers import Workers, nobody, worker_of

from unstuck import Status
from unstuck.protocol.job import Ref
from unstuck.protocol.operators import Event
from unstuck.worker.supervisor import AT_ONCE

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APART = ("unshare", "--pid", "--fork")  # pids mean something else in there: only leases decide who is dead
SIGKILLED = "signal SIGKILL"


def restarted_after(workers: Workers, ref: Ref, moment: float) -> float:
    """Seconds from the moment to the second start of a job."""
    starts = [run.begin for run in workers.ledger.runs() if run.job == ref.id]
    return starts[1] / 1e9 - moment


async def brooding(workers: Workers, child: Child) -> tuple[Ref, list[int]]:
    """A running isolated job, with all processes that it consists of."""
    [ref] = await workers.enqueue("brood", seconds=600.0)
    pids = await until_async(lambda: workers.noted("brood"), 20, "its processes", child.log)
    assert len(pids) == 3
    assert all(map(alive, pids))
    return ref, pids


@pytest.mark.parametrize(
    ("how", "cause"), [pytest.param("66", "exit code 66", marks=pytest.mark.long), ("kill", SIGKILLED)]
)
async def test_a_poison_job_among_fifty_that_run_takes_them_with_it_once(
    workers: Workers, how: str, cause: str
) -> None:
    [poison] = await workers.enqueue("poison", how=how, among=51, max_attempts=3)
    refs = await workers.enqueue("step", 50, gate=workers.gate, max_attempts=3)
    workers.open(2)
    worker = workers.start("--concurrency", "51")

    jobs = {job.ref: job for job in await workers.finished(40, worker)}

    first = worker_of(worker)
    assert {run.job for run in workers.ledger.runs() if run.pid == first} == {
        poison.id,
        *(r.id for r in refs),
    }
    assert [(jobs[ref].status, jobs[ref].attempts, jobs[ref].crashes) for ref in refs] == [
        (Status.COMPLETED, 2, 1)
    ] * 50
    dead = jobs[poison]
    assert (dead.status, dead.attempts, dead.crashes) == (Status.FAILED, 3, 3)
    assert dead.error
    assert (dead.error.code, dead.error.reason) == ("crashed", cause)
    assert await workers.events(poison) == [
        "crash:requeued",
        "crash:requeued",
        "crash:failed(crashed)",
        "alert",
    ]
    pids = [run.pid for run in workers.ledger.runs() if run.job == poison.id]
    assert (pids[0], len(set(pids))) == (first, 3), "the second and third run were not alone"
    worker.terminate()
    assert worker.wait(20) == 0


@pytest.mark.accepts("REC-044", "REC-045")
async def test_jobs_of_a_killed_worker_run_again_at_once_although_their_lease_is_long(
    workers: Workers,
) -> None:
    [ref] = await workers.enqueue("step", gate=workers.gate)
    workers.open(2)
    supervisor = workers.start()
    await workers.begun(ref, supervisor)
    victim = worker_of(supervisor)
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    workers.ledger.died(victim)

    [job] = await workers.finished(20, supervisor)

    assert restarted_after(workers, ref, killed) < 2.0
    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 2, 1)
    assert job.error
    assert (job.error.code, job.error.reason) == ("crashed", SIGKILLED)
    assert await workers.events(ref) == ["crash:requeued"]
    assert workers.ledger.overlaps() == []


async def test_without_recovery_nobody_ends_the_jobs_of_the_dead(workers: Workers) -> None:
    [ref] = await workers.enqueue("step", seconds=600.0)
    supervisor = workers.start("--recovery", "0")
    await workers.begun(ref, supervisor)
    first = worker_of(supervisor)
    os.kill(first, signal.SIGKILL)
    # The next worker has come up and is at work: whoever would have ended the lease has had the time to.
    [probe] = await workers.enqueue("step", seconds=0.0)
    await workers.over(probe, 20, supervisor)

    job = await workers.job(ref)
    assert (job.status, job.crashes) == (Status.PROCESSING, 0)
    assert await workers.events(ref) == []


async def test_a_worker_whose_supervisor_was_killed_ends_gently(workers: Workers) -> None:
    [ref] = await workers.enqueue("step", gate=workers.gate)
    supervisor = workers.start("--concurrency", "2")
    await workers.begun(ref, supervisor)
    brood, pids = await brooding(workers, supervisor)
    family = supervisor.family()
    assert {worker_of(supervisor), *pids} <= family
    supervisor.kill()

    await until_async(lambda: supervisor.says("takes no more jobs"), 20, "its end", supervisor.log)
    workers.open(1)
    job = await workers.over(ref, 20, supervisor)
    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 1, 0), "it was not let end"
    os.kill(worker_of(supervisor), AT_ONCE)  # or it would wait for the brood
    await nobody(family)
    other = await workers.job(brood)
    assert (other.status, other.attempts, other.crashes) == (Status.PENDING, 0, 0)


async def test_a_killed_workers_isolated_jobs_die_with_it_to_the_last_grandchild(workers: Workers) -> None:
    supervisor = workers.start("--concurrency", "2")
    ref, pids = await brooding(workers, supervisor)
    first = worker_of(supervisor)
    everybody = kin(first)
    os.kill(first, signal.SIGKILL)

    await nobody({first, *everybody, *pids})
    await workers.begun(ref, supervisor, times=2)
    assert (await workers.job(ref)).error is not None
    supervisor.terminate()
    await until_async(lambda: supervisor.says("takes no more jobs"), 20, "its end", supervisor.log)
    time.sleep(0.3)  # two within a moment are taken for one
    supervisor.terminate()
    assert supervisor.wait(20) == 0
    await nobody(set(workers.noted("brood")))


@pytest.mark.parametrize("how", ["program", "fork"])
async def test_what_handlers_of_a_killed_worker_left_behind_is_killed(workers: Workers, how: str) -> None:
    """Although they were not isolated."""
    [ref] = await workers.enqueue("litter", how=how)
    supervisor = workers.start()
    await workers.over(ref, 20, supervisor)
    pids = workers.noted("litter")
    assert all(map(alive, pids))
    os.kill(worker_of(supervisor), signal.SIGKILL)

    await nobody(pids)
    await supervisor.until_line_async("killed . processes that worker process .* left behind")
    [after] = await workers.enqueue("step", seconds=0.0)
    assert (await workers.over(after, 20, supervisor)).status is Status.COMPLETED


async def test_supervisor_and_worker_killed_together_leave_nobody_and_are_replaced(workers: Workers) -> None:
    standby = workers.start("--recovery", "1", "--queue", "short", "--processes", "0")
    worker_of(standby)
    supervisor = workers.start("--concurrency", "2")
    ref, pids = await brooding(workers, supervisor)
    victim, family = worker_of(supervisor), supervisor.family()
    os.kill(supervisor.pid, signal.SIGKILL)
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()

    await nobody({victim, *family, *pids})

    async def free() -> bool:
        return (await workers.job(ref)).status is Status.PENDING

    await until_async(free, 20, "the lease to be ended", standby.log)
    assert time.monotonic() - killed < 8.0, "the lease of 20 s was waited for"
    job = await workers.job(ref)
    assert job.error
    assert (job.error.code, f"process {victim} of" in job.error.reason) == ("crashed", True)


@pytest.mark.accepts("REC-042", "REC-043", "REC-050")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="foreign /proc", marks=pytest.mark.long),
        pytest.param(("--mount-proc",), id="own /proc"),
    ],
)
async def test_a_worker_of_another_pid_namespace_waits_for_the_lease(
    workers: Workers, options: tuple[str, ...]
) -> None:
    """It cannot tell who is dead by a pid, so the lease of 2 s decides."""
    [ref] = await workers.enqueue("short_step", queue="short", gate=workers.gate)
    workers.open(2)
    victim = workers.start("--processes", "0", "--recovery", "1")
    await workers.begun(ref, victim)
    other = workers.start("--processes", "0", "--recovery", "1", before=[*APART, *options])
    other.until_line("takes", 20)
    held = await workers.job(ref)
    victim.kill()
    killed = time.monotonic()
    workers.ledger.died(victim.pid)

    [job] = await workers.finished(20, other)

    [event] = await workers.store.events(job=ref)
    assert held.lease_until
    assert event.at >= held.lease_until, "the lease was not waited for"
    assert restarted_after(workers, ref, killed) < 4.0
    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 2, 1)
    assert job.error
    assert (job.error.code, job.error.reason) == ("timeout", "lease_expired")
    assert event.type == "reaper:requeued"


async def test_a_host_that_saw_nothing_of_a_short_lease_ends_it_within_two_seconds_of_its_end(
    workers: Workers,
) -> None:
    """It was granted since the last look, and its holder died at once, with all that could have told."""
    host = workers.start("--recovery", "60", "--queue", "short", before=[*APART, "--mount-proc"])
    await host.until_line_async("takes", 20)
    other = workers.start("--recovery", "60", "--queue", "long", "--processes", "0")
    await other.until_line_async("takes", 20)
    [ref] = await workers.enqueue("short_step", queue="short", seconds=600.0)
    await workers.begun(ref, host)
    host.kill("family")
    killed = (await workers.store.clock()).now  # nobody beats any more: its last lease of 2 s has begun

    async def told() -> list[Event]:
        assert other.exit_code is None, f"{other} ended with {other.exit_code}"
        return await workers.store.events(job=ref)

    [event] = await until_async(told, 20, "the lease to be ended", other.log)
    assert event.type == "reaper:requeued"
    assert (event.at - killed).total_seconds() < 2.0 + 2.0


async def test_workers_in_several_pid_namespaces_steal_nothing_from_each_other(workers: Workers) -> None:
    """With supervisors and isolated jobs; one of them sees the processes of the host in /proc, one is there."""
    options = ("--recovery", "1", "--concurrency", "4")
    host = workers.start(*options)
    inside = [workers.start(*options, before=[*APART, *own]) for own in ([], ["--mount-proc"])]
    for one in (host, *inside):
        await one.until_line_async("takes long", 40)
    refs = await workers.enqueue("step", 6, seconds=2.5)
    refs += await workers.enqueue("apart", 6, seconds=2.5)

    jobs = await workers.finished(40, host)

    assert [(job.status, job.attempts, job.crashes) for job in jobs] == [(Status.COMPLETED, 1, 0)] * 12
    assert {job.error for job in jobs} == {None}
    assert len({ref.id for ref in refs} & {run.job for run in workers.ledger.runs()}) == 12
    for one in (host, *inside):
        assert not one.says("died|recovered [1-9]")
    host.terminate()
    for one in inside:  # unshare itself takes no part
        [first] = [pid for pid, entry in processes().items() if entry.parent == one.pid]
        os.kill(first, signal.SIGTERM)
    assert [one.wait(20) for one in (host, *inside)] == [0, 0, 0]


async def test_killing_a_namespace_kills_all_that_ran_in_it(workers: Workers) -> None:
    supervisor = workers.start("--recovery", "1", before=[*APART, "--kill-child"])
    [ref] = await workers.enqueue("brood", seconds=600.0)
    await workers.begun(ref, supervisor)
    family = supervisor.family()
    supervisor.kill()
    until(lambda: not any(map(alive, family)), 15, "the end of the namespace")
