"""The app under attack: handlers of every kind, ordinary and odd. Each writes to the ledger what it did."""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from support.ledger import Ledger

from chaos.terms import HEARTBEAT, LEASE, PER, RATE
from unstuck import Rate, Retry, StoreError, Transient, Unstuck, current_job
from unstuck.app.task import TaskOptions

app = Unstuck(os.environ["UNSTUCK_STORE"])
ledger = Ledger.from_env()
# Enough attempts for any run of bad luck: a job that fails here has met a defect.
MIXED: TaskOptions = {
    "queue": "mixed",
    "lease": LEASE,
    "heartbeat": HEARTBEAT,
    "max_crashes": 50,
    "retry": Retry(attempts=50, backoff=(0.1,)),
}
MIXED_APART: TaskOptions = {**MIXED, "isolate": True}
ODD: TaskOptions = {**MIXED, "queue": "odd"}
ODD_APART: TaskOptions = {**ODD, "isolate": True}
app.queue("rated", rate=Rate(RATE, per=PER), lease=LEASE, heartbeat=HEARTBEAT, max_crashes=50)


class Panic(BaseException):
    """As extension modules written in Rust raise it."""


def begin() -> None:
    job = current_job()
    ledger.note("begin", job.id, job.fence, owner=job.job.owner, task=job.job.task, pid=os.getpid())


def end() -> None:
    job = current_job()
    ledger.note("end", job.id, job.fence)


@app.task(**MIXED)
async def on_loop(n: int, seconds: float) -> int:
    begin()
    await asyncio.sleep(seconds)
    end()
    return n


@app.task(**MIXED)
def in_thread(n: int, seconds: float) -> int:
    begin()
    time.sleep(seconds)
    end()
    return n


@app.task(**MIXED_APART)
def apart(n: int, seconds: float) -> int:
    begin()
    time.sleep(seconds)
    end()
    return n


@app.task(**MIXED)
async def flaky(n: int) -> int:
    begin()
    if current_job().attempt == 1:
        raise Transient("the first attempt always fails")
    end()
    return n


@app.task(**MIXED)
async def first_stage(n: int) -> int:
    begin()
    current_job().then(second_stage.call(current_job().id))
    end()
    return n


@app.task(**MIXED)
async def second_stage(of: str) -> str:
    begin()
    end()
    return of


@app.task(queue="rated", retry=Retry(attempts=50, backoff=(0.1,)))
async def rated(n: int) -> int:
    begin()
    end()
    return n


@app.task(queue="rated", retry=Retry(attempts=50, backoff=(0.1,)), isolate=True)
def rated_apart(n: int) -> int:
    begin()
    end()
    return n


@app.task(queue="poison", lease=LEASE, heartbeat=HEARTBEAT, retry=2)
async def poison(n: int) -> None:
    begin()
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(**ODD)
async def panics(n: int) -> int:
    begin()
    if current_job().attempt == 1:
        raise Panic("not an Exception")
    end()
    return n


@app.task(**ODD)
async def forks(n: int) -> int:
    """The child returns into the worker's own code, as that of a careless handler does."""
    begin()
    if os.fork() == 0:
        return n
    end()
    return n


@app.task(**ODD)
async def blocks(n: int, seconds: float) -> int:
    begin()
    time.sleep(seconds)
    end()
    return n


@app.task(**ODD)
def leaves_helper(n: int) -> int:
    """A helper that outlives the job, in a session of its own, with all descriptors of its worker."""
    begin()
    subprocess.Popen(["sleep", "60"], start_new_session=True, close_fds=False)
    end()
    return n


@app.task(**ODD)
def deaf(n: int, seconds: float) -> int:
    """A thread that does not hear that its job was cancelled or its worker is to end."""
    begin()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(BaseException):
            time.sleep(0.1)
    end()
    return n


@app.task(**ODD)
def closes_descriptor(n: int) -> int:
    """Close a descriptor of the store's file, as code does that closes one of its own twice."""
    begin()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(entry.readlink()).endswith("jobs.db"):
                os.close(int(entry.name))
                break
    end()
    return n


@app.task(**ODD_APART)
def elsewhere(n: int) -> int:
    """Enqueue from another folder: the job must land in the same store."""
    begin()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            key = f"elsewhere-{current_job().id}"
            follower = second_stage.options(key=key).enqueue_sync(current_job().id)
            ledger.note("acknowledged", follower.id, 0, task="second_stage")
        except StoreError as error:
            raise Transient("the store is away") from error
        finally:
            with suppress(OSError):
                os.chdir("/")
    end()
    return n
