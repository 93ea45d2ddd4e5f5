"""The measurements, the same for every contestant."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import marks
from bench.contestant import MARKS, Contestant

LONGEST_DRAIN = 300.0
LONGEST_START = 30.0


class Drained(NamedTuple):
    """Jobs a second from the first start to the durable end of all; the worker's peak of memory."""

    rate: float
    megabytes: float


class Latency(NamedTuple):
    """Milliseconds from the call of enqueue to the start of the handler."""

    p50: float
    p99: float


def enqueue(contestant: Contestant, how: str, jobs: int) -> float:
    """Jobs a second. Leaves them in the store, for a drain."""
    return jobs / float(contestant.run(how, jobs)["seconds"])


def drain(contestant: Contestant, jobs: int, *arguments: str) -> Drained:
    """Let one worker process finish ``jobs`` of the waiting jobs, as many or more of which there must be."""
    already = contestant.finished(jobs)
    with contestant.working(*arguments) as worker:
        _until(lambda: marks.count(MARKS) > 0, LONGEST_START, worker, contestant)
        return Drained(rate(contestant, jobs, already, worker), _peak(worker.pid))


def latency(contestant: Contestant, jobs: int, *arguments: str) -> Latency:
    """Enqueue single jobs, each when the worker has long been idle again."""
    with contestant.working(*arguments) as worker:
        sent: list[int] = contestant.run("spaced", jobs)["sent"]
        _until(lambda: marks.count(MARKS) > jobs, LONGEST_START, worker, contestant)
    started = {number: at for number, at in marks.read(MARKS) if number >= 0}
    waits = sorted((started[number] - at) / 1e6 for number, at in enumerate(sent))
    return Latency(waits[len(waits) // 2], waits[len(waits) * 99 // 100])


def disk(folder: Path) -> float:
    """How often a second the disk takes a write and confirms it: what every durable single step pays."""
    path = folder / "disk"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        began, writes = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < 1.0:
            os.write(file, b"x" * 8192)
            os.fsync(file)
            writes += 1
        return writes / took
    finally:
        os.close(file)
        path.unlink()


def rate(contestant: Contestant, jobs: int, already: int, *workers: subprocess.Popen[bytes]) -> float:
    """Jobs a second, when that many more are finished than were ``already``."""
    _until(lambda: marks.count(MARKS) >= jobs, LONGEST_DRAIN, workers[0], contestant)
    finished = 0
    while finished < jobs:  # the last marks are there, their settling may not be
        time.sleep(0.002)
        finished = contestant.finished(jobs) - already
        end = time.monotonic_ns()
    starts = marks.read(MARKS)
    if len({number for number, _ in starts}) != len(starts):
        raise RuntimeError(f"{contestant.name} ran jobs twice")
    return finished / (end - starts[0][1]) * 1e9


def _until(
    true: Callable[[], bool], seconds: float, worker: subprocess.Popen[bytes], contestant: Contestant
) -> None:
    end = time.monotonic() + seconds
    while not true():
        if worker.poll() is not None or time.monotonic() > end:
            log = (contestant.stores / "worker.log").read_text()[-2000:]
            raise RuntimeError(f"the worker of {contestant.name} ended or did not get on:\n{log}")
        time.sleep(0.01)


def _peak(pid: int) -> float:
    """The most memory the process ever had, in MB; NaN where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return float("nan")
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kilobytes) / 1024
