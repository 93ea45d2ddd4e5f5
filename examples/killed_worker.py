"""Watch the jobs of a killed worker come back.

Two worker processes share a SQLite file. One of them is killed with SIGKILL while it is busy. Every handler
also notes what it did in a file of its own, so that the verdict does not rest on the store's word alone.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from unstuck import Filter, Jobs, Status, Unstuck, current_job, open_store

JOBS = 1000
TERMINAL = sys.stdout.isatty()
FOLDER = Path(os.environ.get("DEMO_FOLDER") or tempfile.mkdtemp(prefix="unstuck-demo-"))

app = Unstuck(f"sqlite:///{FOLDER / 'jobs.db'}")


@app.task(lease=3.0, heartbeat=0.5)
async def render(page: int) -> str:
    await asyncio.sleep(0.1)
    with (FOLDER / "effects").open("a") as effects:
        effects.write(f"{current_job().id} {page}\n")
    return f"page {page}"


def start_worker() -> subprocess.Popen[bytes]:
    # Without a supervisor, which would start another: here the second worker has to notice and take over.
    command = [sys.executable, "-m", "unstuck", "worker", "killed_worker:app", "--processes", "0"]
    with (FOLDER / "workers.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=Path(__file__).parent, env=os.environ | {"DEMO_FOLDER": str(FOLDER)}, stderr=log
        )


async def wait_for(jobs: Jobs, done: int) -> None:
    """Show progress until so many jobs are done: one line that changes, or a line a second if piped."""
    shown = 0.0
    while True:
        [counts] = await jobs.counts()
        over = counts.completed >= done
        if over or time.monotonic() - shown > (0.1 if TERMINAL else 1.0):
            shown = time.monotonic()
            line = f"{counts.completed:5} of {JOBS} done, {counts.processing:3} running, {counts.pending:4} waiting"
            print(f"\r{line}" if TERMINAL else line, end="\n" if over or not TERMINAL else "", flush=True)
        if over:
            return
        await asyncio.sleep(0.02)


async def held_by(jobs: Jobs, worker: subprocess.Popen[bytes]) -> int:
    held = (await jobs.find(Filter(status=Status.PROCESSING), 1000)).jobs
    return sum(f"-{worker.pid}-" in (job.owner or "") for job in held)


async def watch() -> bool:
    async with open_store(app.url) as store:
        jobs = Jobs(store)
        await wait_for(jobs, JOBS // 4)
        victim = workers[0]
        while not (stranded := await held_by(jobs, victim)):
            await asyncio.sleep(0.01)
        victim.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        print(f"killed worker {victim.pid} with SIGKILL: it held {stranded} jobs")
        await wait_for(jobs, JOBS)
        seconds = time.monotonic() - killed
        [counts] = await jobs.counts()
        crashed = [job for job in (await jobs.find(Filter(), 1000)).jobs if job.crashes]

    effects = Counter(line.split()[0] for line in (FOLDER / "effects").read_text().splitlines())
    lost = JOBS - len(effects)
    rows = {
        "enqueued": JOBS,
        "completed": counts.completed,
        "recovered from the killed worker": len(crashed),
        "seconds from the kill to the last job": f"{seconds:.1f}",
        "lost": lost,
        "stuck": counts.processing + counts.pending,
    }
    print()
    for name, value in rows.items():
        print(f"{name:40}{value:>8}")
    return lost == 0 and counts.completed == JOBS


if __name__ == "__main__":
    print(f"{JOBS} jobs, two workers, one file: {FOLDER / 'jobs.db'}")
    app.enqueue_many_sync([render.call(page) for page in range(JOBS)])
    workers = [start_worker(), start_worker()]
    try:
        fine = asyncio.run(watch())
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
    print("\nEvery job was done, and none is stuck." if fine else "\nSomething is wrong.")
    sys.exit(0 if fine else 1)
