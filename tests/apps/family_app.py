"""An app whose handlers do what kills workers, blocks them or leaves processes behind."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.ledger import Ledger

from unstuck import Critical, Permanent, Retry, Snooze, Transient, Unstuck, current_job
from unstuck.app.task import TaskOptions

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


def closed(gate: str) -> bool:
    """Whether a handler that was given a gate has to wait at it: each attempt has one of its own, opened by the test."""
    return bool(gate) and not Path(f"{gate}{current_job().attempt}").exists()


@app.task(queue="long", retry=RETRY)
async def step(seconds: float = 0.0, gate: str = "") -> int:
    begin()
    await asyncio.sleep(seconds)
    while closed(gate):
        await asyncio.sleep(0.05)
    end()
    return os.getpid()


@app.task(queue="long", retry=RETRY)
def hold(seconds: float = 0.0, gate: str = "") -> int:
    begin()
    time.sleep(seconds)
    while closed(gate):
        time.sleep(0.05)
    end()
    return os.getpid()


@app.task(queue="long", retry=RETRY, isolate=True)
def apart(seconds: float = 0.0, gate: str = "", together: int = 1) -> int:
    """``together`` with others it does not end before so many of them have begun."""
    begin()
    time.sleep(seconds)
    while closed(gate) or (together > 1 and len(Ledger.from_env().runs()) < together):
        time.sleep(0.05)
    end()
    return os.getpid()


@app.task(queue="long", retry=RETRY, isolate=True)
def brood(seconds: float = 0.0, gate: str = "") -> None:
    """Leave a child in the own group, and one in a session of its own."""
    begin()
    first = subprocess.Popen(["sleep", "600"])
    second = subprocess.Popen(["sleep", "600"], start_new_session=True)
    note("brood", os.getpid(), first.pid, second.pid)
    time.sleep(seconds)
    while closed(gate):
        time.sleep(0.05)


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
async def poison(how: str, among: int = 1) -> None:
    """Kill the process that runs it, as a segfault or the kernel's memory killer does, once so many have begun."""
    begin()
    while len({run.job for run in Ledger.from_env().runs()}) < among:
        await asyncio.sleep(0.05)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(int(how))


@app.task(queue="long", retry=RETRY)
async def broken_ground() -> None:
    raise Critical("the disk is gone")


@app.task(**SHORT)
async def short_step(seconds: float = 0.0, gate: str = "") -> int:
    begin()
    await asyncio.sleep(seconds)
    while closed(gate):
        await asyncio.sleep(0.05)
    end()
    return os.getpid()


@app.task(**SHORT_APART)
def short_apart(seconds: float) -> int:
    begin()
    time.sleep(seconds)
    end()
    return os.getpid()


@app.task(**SHORT)
async def block_the_loop(seconds: float = 0.0, gate: str = "") -> None:
    begin()
    time.sleep(seconds)
    while closed(gate):
        time.sleep(0.05)
    end()


def keep_to_itself(fifo: str) -> None:
    """One call that keeps the interpreter until the other end of the FIFO is opened."""
    libc = ctypes.PyDLL(None)  # unlike CDLL it does not let other threads run meanwhile
    libc.open(fifo.encode(), os.O_RDONLY)


@app.task(**SHORT)
def keep_the_interpreter(fifo: str, gate: str) -> int:
    """In its first attempt, which goes on for a while after that."""
    begin()
    if current_job().attempt == 1:
        keep_to_itself(fifo)
    while closed(gate):
        time.sleep(0.02)
    end()
    return current_job().attempt


@app.task(**SHORT_APART)
def keep_an_interpreter(fifo: str) -> None:
    begin()
    keep_to_itself(fifo)
    end()


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
async def apart_async(gate: str) -> int:
    begin()
    job = current_job()
    job.bind(customer=7)
    job.log("spoken apart", part=1)
    job.stage("second", expected=30.0)
    job.progress({"done": 0.5})
    job.then(next_step.call("from a child"))
    while closed(gate):
        await asyncio.sleep(0.05)
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
