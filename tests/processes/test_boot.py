"""What a real worker makes of its environment when it starts."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from support.folders import IMPORTABLE
from support.processes import Child
from support.servers import free_port
from support.waiting import until, until_async

import unstuck
from unstuck import Filter, Jobs, Reaper, Status
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import Job, NewJob
from unstuck.protocol.leases import Share
from unstuck.stores.shared.statements import statements
from unstuck.testing import SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

UNSTUCK = (sys.executable, "-m", "unstuck")
DAYS = "EMBED_JOB_RETENTION_DAYS"
Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path, harness: SQLiteHarness) -> Iterator[Start]:
    with ExitStack() as children:
        count = 0

        def begin(*options: str, **env: str) -> Child:
            nonlocal count
            count += 1
            argv = [*UNSTUCK, "worker", "boot_app:app", *options]
            known = {"UNSTUCK_STORE": harness.url, "PYTHONPATH": _path()}
            child = Child(argv, tmp_path / f"worker-{count}.log", env=known | env, cwd=tmp_path)
            return children.enter_context(child)

        yield begin


def _path() -> str:
    source = Path(unstuck.__file__).parents[1]
    return f"{source}:{IMPORTABLE}"


async def stuck(harness: SQLiteHarness) -> NewJob:
    """A job of the queue of embeddings whose lease has run out."""
    job = NewJob(queue="embeddings", task="embed", id=new_id(), payload={"text": "abc"}, max_crashes=10)
    await harness.store.enqueue([job])
    assert await harness.store.lease({"embeddings": Share(300.0, 1)}, 1, "a worker that is gone")
    await harness.age(301)
    return job


@pytest.mark.accepts("EMB-028")
async def test_a_worker_without_the_days_of_retention_refuses_to_start(start: Start) -> None:
    worker = start()

    assert worker.wait(20) == 2
    [line] = worker.log.read_text().splitlines()
    assert f"{DAYS} is not set" in line
    assert "7 to 30" in line


@pytest.mark.accepts("EMB-029")
@pytest.mark.parametrize("days", ["6", "31", "14.5", "two weeks", "-7"])
async def test_a_worker_with_impossible_days_refuses_to_start(start: Start, days: str) -> None:
    worker = start("--processes", "0", **{DAYS: days})

    assert worker.wait(20) == 2
    [line] = worker.log.read_text().splitlines()
    assert DAYS in line
    assert days in line
    assert "7 to 30" in line


@pytest.mark.accepts("REC-080")
async def test_a_worker_with_the_days_cleans_up_after_them(harness: SQLiteHarness, start: Start) -> None:
    job = await stuck(harness)
    worker = start("--burst", "--queue", "embeddings", **{DAYS: "7"})
    assert worker.wait(30) == 0
    assert (await harness.store.find(Filter(ids=(job.id,)))).jobs[0].status is Status.COMPLETED
    await harness.age(8 * 86400)

    start("--queue", "embeddings", **{DAYS: "7"})

    async def gone() -> bool:
        return not (await harness.store.find(Filter(ids=(job.id,)))).jobs

    await until_async(gone, 20, "the old job to be deleted")


@pytest.mark.accepts("REC-071", "REC-072", "REC-082")
async def test_recovery_is_switched_off_by_its_variable_in_milliseconds(
    harness: SQLiteHarness, start: Start
) -> None:
    """Off, nothing touches the lost job, also not at start; on, it is recovered, and the next run comes in milliseconds."""
    job = await stuck(harness)
    off = start("--burst", "--queue", "embeddings", **{DAYS: "14", "EMBED_JOB_RECOVERY_INTERVAL": "0"})
    assert off.wait(30) == 0
    assert off.says("recovery is off")
    [lost] = (await harness.store.find(Filter(ids=(job.id,)))).jobs
    assert (lost.status, lost.owner) == (Status.PROCESSING, "a worker that is gone")

    on = start("--queue", "embeddings", **{DAYS: "14", "EMBED_JOB_RECOVERY_INTERVAL": "500"})
    until(lambda: on.log.read_text().count("recovered 0 jobs") >= 4, 40, "four more runs", on.log)

    async def done() -> Job | None:
        [found] = (await harness.store.find(Filter(ids=(job.id,)))).jobs
        return found if found.status is Status.COMPLETED else None

    assert (await until_async(done, 20, "the lost job to be done", on.log)).crashes == 1


@pytest.mark.accepts("REC-052", "REC-076", "REC-083")
async def test_a_workers_log_reports_a_recovery_which_jobs_and_when(
    harness: SQLiteHarness, start: Start
) -> None:
    job = await stuck(harness)
    before = datetime.now(UTC)
    worker = start("--burst", "--queue", "embeddings", **{DAYS: "14"})
    assert worker.wait(30) == 0

    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    [told] = [line for line in lines if line.get("recovered")]
    assert (told["recovered"], told["jobIds"], told["level"]) == (1, [job.id], "WARNING")
    assert before - timedelta(seconds=1) < datetime.fromisoformat(told["timestamp"]) < datetime.now(UTC)
    status = await Jobs(harness.store).get_queue_status("embeddings")
    assert status == {"pending": 0, "processing": 0, "completed": 1, "failed": 0}
    assert (await Jobs(harness.store).get_health_status("embeddings")).status == "HEALTHY"


@pytest.mark.accepts("REAP-070")
async def test_the_interval_of_the_reaper_is_its_variable_in_seconds(
    harness: SQLiteHarness, tmp_path: Path
) -> None:
    env = {"UNSTUCK_STORE": harness.url, "REAPER_INTERVAL_SEC": "0.5", "PYTHONPATH": _path()}
    with Child([*UNSTUCK, "reap"], tmp_path / "reap.log", env=env) as reaper:
        until(lambda: reaper.log.read_text().count("recovered 0 jobs") >= 4, 40, "four rounds", reaper.log)
    env["REAPER_INTERVAL_SEC"] = "often"
    with Child([*UNSTUCK, "reap"], tmp_path / "reap.log", env=env) as reaper:
        assert reaper.wait(20) == 2
        assert reaper.says("REAPER_INTERVAL_SEC")


async def test_a_reaper_alone_serves_its_metrics(harness: SQLiteHarness, tmp_path: Path) -> None:
    argv = [*UNSTUCK, "reap", "--interval", "1", "--metrics-port", str(free_port()), "--store", harness.url]
    with Child(argv, tmp_path / "reap.log", env={"PYTHONPATH": _path()}) as reaper:
        address = reaper.until_line("metrics at", 30).split("metrics at ")[1].split('"')[0]

        def scraped() -> str:
            with urllib.request.urlopen(address, timeout=30) as answer:
                text: str = answer.read().decode()
            return text if 'reaper_scan_duration_ms{worker="reaper-' in text else ""

        assert "unstuck_up 1.0" in until(scraped, 20, "its scan to be told", reaper.log)


@pytest.mark.long
@pytest.mark.accepts("REAP-040", "REAP-041")
async def test_a_clip_is_beaten_for_every_ten_to_fifteen_seconds(
    harness: SQLiteHarness, start: Start
) -> None:
    await harness.store.enqueue([NewJob(queue="clips", task="clip", id=new_id(), payload={"seconds": 60})])
    worker = start("--queue", "clips")
    beats: list[datetime] = []  # by the clock of the store: when they were seen depends on who looks

    async def twice() -> bool:
        jobs = (await harness.store.find(Filter(status=Status.PROCESSING))).jobs
        if jobs and jobs[0].heartbeat_at not in (*beats, jobs[0].started_at):
            assert jobs[0].heartbeat_at is not None
            assert jobs[0].lease_until is not None
            beats.append(jobs[0].heartbeat_at)
            assert (jobs[0].lease_until - beats[-1]).total_seconds() == pytest.approx(300, abs=0.01)
        return len(beats) == 2

    await until_async(twice, 40, "two beats", worker.log)
    assert 10 <= (beats[1] - beats[0]).total_seconds() <= 15


@pytest.mark.accepts("REC-061")
async def test_a_file_of_the_first_release_is_recovered_as_it_is(tmp_path: Path) -> None:
    """Its schema grows by what may be empty, and what the first release writes still fits."""
    file = tmp_path / "old.db"
    first = statements("unstuck.stores.sqlite", "sql/migrations")["001_jobs"]
    insert = (
        "INSERT INTO job (queue, id, task, status, payload, created_at, run_at, attempts, max_attempts, fence, owner, "
        "lease_until, heartbeat_at) VALUES ('q', ?, 't', 'processing', '{}', 1, 1, 1, 3, 5, 'w', 2, 1)"
    )
    old = apsw.Connection(str(file))
    old.execute(f"{first}; PRAGMA application_id = {0x756E7374}; PRAGMA user_version = 1;")
    old.execute(insert, ("before",))

    async with Reaper(f"sqlite:///{file}", interval=60) as reaper:
        old.execute(insert, ("after",))
        old.close()
        assert len(await reaper.recover()) == 1
        assert reaper._store is not None
        jobs = (await reaper._store.find(Filter())).jobs

    assert {(job.id, job.status, job.crashes) for job in jobs} == {
        ("before", Status.PENDING, 1),
        ("after", Status.PENDING, 1),
    }


@pytest.mark.accepts("REC-079", "REC-065")
def test_recovery_needs_neither_metrics_nor_another_service(tmp_path: Path) -> None:
    """Nothing but the file: no library for metrics is loaded, no connection is opened."""
    code = f"""
import asyncio, os, sys
from pathlib import Path
from unstuck import Reaper

async def main():
    async with Reaper("sqlite:///{tmp_path}/jobs.db"):
        links = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.exists() or fd.is_symlink()]
        sockets = [link for link in links if link.startswith("socket")]
        tables = "".join(Path(f"/proc/self/net/{{name}}").read_text() for name in ("tcp", "tcp6", "udp", "udp6"))
        assert not [link for link in sockets if link[8:-1] in tables.split()], "it speaks to somebody"
    assert "prometheus_client" not in sys.modules

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
