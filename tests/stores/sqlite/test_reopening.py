"""What becomes of connections to the file when the process forks, the file is replaced, or a descriptor is closed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import until_async

from unstuck import Filter, StoreUnavailable, Unstuck, Worker, open_store
from unstuck.stores import existing_store
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, states

pytestmark = pytest.mark.anyio

# Its parent is gone, and whenever it has enqueued another process opens the file, enqueues and closes it.
DAEMON = """
import os, subprocess, sys
from unstuck import Unstuck

app = Unstuck("sqlite:///jobs.db")

@app.task
async def work(n: int) -> int: return n

if len(sys.argv) > 1:
    work.enqueue_sync(int(sys.argv[1]))
    sys.exit()
hears, tells = os.pipe()
work.enqueue_sync(0)
if os.fork():
    os._exit(0)  # at once, without letting go of anything
for n in range(1, 6):
    assert work.enqueue_sync(n).created
    subprocess.run([sys.executable, __file__, str(100 + n)], check=True)
print("done", flush=True)
"""


def file(harness: SQLiteHarness) -> Path:
    return Path(harness.url.removeprefix("sqlite:///"))


async def numbers(path: Path) -> list[int]:
    async with existing_store(f"sqlite:///{path}") as store:
        return sorted(job.payload["n"] for job in (await store.find(Filter(), 1000)).jobs)


async def test_a_daemon_loses_nothing_that_it_enqueued_after_its_parent_ended(tmp_path: Path) -> None:
    (tmp_path / "daemon.py").write_text(DAEMON)
    # From 3.12 on, Python warns of every fork beside a thread.
    argv = [sys.executable, "-W", "ignore::DeprecationWarning", str(tmp_path / "daemon.py")]

    ran = await asyncio.to_thread(
        subprocess.run, argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert (ran.stdout, ran.stderr) == ("done\n", "")  # which it holds open until it ends
    assert await numbers(tmp_path / "jobs.db") == [0, 1, 2, 3, 4, 5, 101, 102, 103, 104, 105]


async def test_nothing_is_enqueued_into_a_file_that_was_deleted(harness: SQLiteHarness) -> None:
    await enqueued(harness.store)
    for path in file(harness).parent.glob("jobs.db*"):
        path.unlink()

    for _ in range(2):
        with pytest.raises(
            StoreUnavailable, match="was deleted or moved away: put it back, or make a new one"
        ):
            await enqueued(harness.store)
    with pytest.raises(StoreUnavailable, match="was deleted or moved away"):
        await harness.store.count()
    assert not file(harness).exists()


async def test_a_file_that_was_replaced_is_used_from_then_on(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await enqueued(harness.store, 3)
    for path in file(harness).parent.glob("jobs.db*"):
        path.rename(path.with_name(f"old-{path.name}"))
    async with open_store(harness.url) as other:
        await other.migrate()
        await enqueued(other)

        await enqueued(harness.store)
        assert await states(harness.store) == await states(other) == {"pending": 2}
        assert Path(
            f"{file(harness)}-wal"
        ).exists()  # the log of the new one, which has the name of the old one's
    assert any("it was deleted or replaced" in message for message in caplog.messages)
    async with existing_store(f"sqlite:///{file(harness).parent}/old-jobs.db") as old:
        assert await states(old) == {"pending": 3}


async def test_a_worker_goes_on_with_the_file_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = Unstuck(url)

    @app.task
    async def work(n: int) -> int:
        return n

    async with app:
        assert (await work.enqueue(1)).created
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await until_async(lambda: worker.get_health_status().successes, 30, "the first job")
        for path in tmp_path.glob("jobs.db*"):
            path.unlink()
        async with open_store(url) as other:
            await other.migrate()
            async with Unstuck(url):
                handle = await work.enqueue(2)

                assert await handle.result(60) == 2
        worker.stop()
        await running


async def test_a_descriptor_that_somebody_closed_costs_one_call(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 3)
    await harness.store.count()
    twin = await harness.store.twin().__aenter__()
    await twin.count()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        try:
            if os.readlink(f"/proc/self/fd/{name}") in (str(file(harness)), f"{file(harness)}-wal"):  # noqa: PTH115
                os.close(int(name))
        except OSError:
            continue

    failures = 0
    for store in (harness.store, twin):
        for call in (lambda store=store: enqueued(store), store.count):
            try:
                await call()
            except StoreUnavailable:
                failures += 1
                await call()
    assert failures <= 1
    assert sum((await states(harness.store)).values()) == sum((await states(twin)).values()) >= 5
    await twin.__aexit__(None, None, None)
