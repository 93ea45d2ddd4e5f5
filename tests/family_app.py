"""An app whose handlers do what kills workers, blocks them or leaves processes behind."""

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.ledger import Ledger

from unstuck import Critical, Permanent, Retry, Snooze, Transient, Unstuck, current_job
from unstuck.task import TaskOptions

app = Unstuck(os.environ["UNSTUCK_STORE"])
RETRY = Retry(attempts=3, backoff=(0.1,))
SHORT: TaskOptions = {"queue": "short", "lease": 2.0, "heartbeat": 0.3, "retry": RETRY}
SHORT_APART: TaskOptions = {**SHORT, "isolate": True}
opened: list[int] = []


@app.lifespan
@asynccontextmanager
async def pool() -> AsyncIterator[None]:
    """What handlers share in one process; here only who opened it."""
    opened.append(os.getpid())
    yield


def begin() -> None:
    job = current_job()
    Ledger.from_env().begin(job.id, job.fence)


def end() -> None:
    job = current_job()
    Ledger.from_env().end(job.id, job.fence)


def note(kind: str, *pids: int) -> None:
    job = current_job()
    Ledger.from_env().note(kind, job.id, job.fence, pids=pids)


@app.task(queue="long", retry=RETRY)
async def step(seconds: float) -> int:
    begin()
    await asyncio.sleep(seconds)
    end()
    return os.getpid()


@app.task(queue="long", retry=RETRY)
def hold(seconds: float) -> int:
    begin()
    time.sleep(seconds)
    end()
    return os.getpid()


@app.task(queue="long", retry=RETRY, isolate=True)
def apart(seconds: float) -> int:
    begin()
    time.sleep(seconds)
    end()
    return os.getpid()


@app.task(queue="long", retry=RETRY, isolate=True)
def brood(seconds: float) -> None:
    """Leave a child in the own group, and one in a session of its own."""
    begin()
    first = subprocess.Popen(["sleep", "600"])
    second = subprocess.Popen(["sleep", "600"], start_new_session=True)
    note("brood", os.getpid(), first.pid, second.pid)
    time.sleep(seconds)


@app.task(queue="long", retry=RETRY)
def litter(how: str) -> None:
    """Leave a process behind that belongs to the worker: a program, or a fork that keeps all that was open."""
    begin()
    if how == "fork":
        if (pid := os.fork()) == 0:
            time.sleep(600)
            os._exit(0)
    else:
        pid = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    note("litter", pid)


@app.task(queue="long", retry=RETRY)
async def poison(how: str, seconds: float = 0.0) -> None:
    """Kill the process that runs it, as a segfault or the kernel's memory killer does."""
    begin()
    await asyncio.sleep(seconds)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(int(how))


@app.task(queue="long", retry=RETRY)
async def broken_ground() -> None:
    raise Critical("the disk is gone")


@app.task(**SHORT)
async def short_step(seconds: float) -> int:
    begin()
    await asyncio.sleep(seconds)
    end()
    return os.getpid()


@app.task(**SHORT_APART)
def short_apart(seconds: float) -> int:
    begin()
    time.sleep(seconds)
    end()
    return os.getpid()


@app.task(**SHORT)
async def block_the_loop(seconds: float, again: float | None = None) -> None:
    """For so long, and in later attempts for as long as ``again`` says."""
    begin()
    time.sleep(seconds if again is None or current_job().attempt == 1 else again)
    end()


def backtrack(seconds: float) -> None:
    """One call that keeps the interpreter for that long at least: what it takes is told in time of the processor."""
    size, took = 16, 0.0
    while took < 0.1:
        size += 1
        began = time.thread_time()
        re.match(r"(a+)+$", "a" * size + "b")
        took = time.thread_time() - began
    while took < seconds:
        size, took = size + 1, took * 2
    begin()
    re.match(r"(a+)+$", "a" * size + "b")
    end()


@app.task(**SHORT)
def keep_the_interpreter(seconds: float) -> None:
    backtrack(seconds)


@app.task(**SHORT_APART)
def keep_an_interpreter(seconds: float) -> None:
    backtrack(seconds)


@app.task(queue="long", retry=1)
async def who_has_the_pool() -> list[int]:
    return opened


@app.task(queue="long", retry=1, isolate=True)
def who_has_the_pool_apart() -> list[int]:
    return opened


@app.task(queue="long", retry=1)
def next_step(said: str) -> str:
    return said


@app.task(queue="long", retry=RETRY, isolate=True)
async def apart_async(seconds: float) -> int:
    begin()
    job = current_job()
    job.bind(customer=7)
    job.log("spoken apart", part=1)
    job.stage("second", expected=30.0)
    job.progress({"done": 0.5})
    job.then(next_step.call("from a child"))
    await asyncio.sleep(seconds)
    return os.getpid()


@app.task(queue="long", retry=Retry(attempts=1), timeout=1.0, isolate=True)
def late() -> None:
    """A child that does not listen, with a child that does not, either."""
    begin()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600 & wait"], start_new_session=True)
    note("brood", os.getpid(), child.pid)
    time.sleep(600)


@app.task(queue="long", retry=Retry(attempts=1), isolate=True)
def rough(what: str) -> object:
    """What a handler should not do, and some do."""
    begin()
    match what:
        case "exit 0":
            os._exit(0)
        case "exit 7":
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "close":
            print("not flushed", end="")
            os.closerange(0, 256)
        case "cwd":
            os.chdir("/")
            os.environ["HOME"] = "/nowhere"
        case "mask":
            signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
        case "fork":
            os.fork()  # both return
        case "fork that raises":
            if os.fork() == 0:
                raise ValueError("from the fork")
            time.sleep(0.5)
        case "print":
            sys.stdout.write("x" * 5_000_000)
        case "exit":
            sys.exit(5)
        case "interrupt":
            raise KeyboardInterrupt
        case "permanent":
            raise Permanent("never", code="no_such_thing")
        case "transient":
            raise Transient("not now")
        case "unknown":
            raise RuntimeError("a bug")
        case "snooze":
            raise Snooze(3600)
        case "large":
            return "x" * 5_000_000
        case "object":
            return object()
        case "coroutine":
            return asyncio.sleep(0)
        case "threads":
            import threading

            threading.Thread(target=time.sleep, args=(600,)).start()
        case "garbage":
            for fd in range(3, 64):
                try:
                    os.write(fd, b"\0\0\0\x05abcde")
                except OSError:
                    continue
            time.sleep(600)
    return what
