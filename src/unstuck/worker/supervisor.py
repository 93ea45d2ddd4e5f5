"""Supervisor: a small parent over worker processes. It never runs a job, so it is there when one of them dies."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import FileIO
from typing import Any

from unstuck.background import end
from unstuck.protocol.errors import ConfigError, SchemaError
from unstuck.recovery import processes
from unstuck.recovery.reaper import Reaper
from unstuck.stores import existing_store

log = logging.getLogger("unstuck.supervisor")

# The signals that a supervisor sends to its workers. Any other signal that ends a program means GENTLY, however often it
# comes, because some programs that stop a service signal its parent and its children alike.
GENTLY, AT_ONCE = signal.SIGTERM, signal.SIGUSR1
DONE, FAILED, BAD_INPUT, HALTED, RECYCLED = 0, 1, 2, 3, 4  # exit codes that mean something after a GOODBYE
DIED = -1  # it did not: no exit code, whatever the process ended with
MEANT = (DONE, BAD_INPUT, HALTED, RECYCLED)  # those that are not a death
MARK = "UNSTUCK_WORKER"
REAP_EVERY = 1.0  # seconds between two looks for zombies
GOODBYE = b"goodbye\n"
SPENT = b"spent\n"  # it takes no more jobs, and ends when those that run have
STEADY = 60.0  # seconds after which a worker's death is not held against the next one
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a restart, after the first one, which comes at once
FAREWELL = 30.0  # seconds beyond the grace until a worker that does not end is killed
PATIENCE = 30.0  # seconds to try to end the leases of a worker that died
LAST_TRY = 3.0  # seconds of them once it is stopping and all workers have ended
SOON = 2.0  # seconds of them that the next worker waits for, so that it finds what the dead one held


@dataclass(frozen=True, slots=True)
class StartReport:
    """What a worker reports when it starts, so that its parent can end its leases when it is dead."""

    id: str
    store: str
    recovery: float


class Supervisor:
    """Keeps ``processes`` workers running, each started by ``argv`` and an option that names its parent.

    A worker that dies has its leases ended at once, with the signal or exit code as the cause, and is
    started again, later and later. One that halted, or whose settings are wrong, is not; nor, in a
    ``burst``, one that failed before it took a job, or by itself. One that has started the jobs it may is replaced
    while its last ones run; in a burst when they have ended, because they may bring further jobs.
    """

    def __init__(self, argv: Sequence[str], *, processes: int, grace: float, burst: bool = False) -> None:
        self._argv = tuple(argv)
        self._processes = processes
        self._grace = grace
        self._burst = burst
        # One that ends well by itself has nothing left to do in a burst; otherwise somebody else stopped it.
        self._last = (DONE, FAILED, BAD_INPUT, HALTED) if burst else (BAD_INPUT, HALTED)
        self._ending_leases: set[asyncio.Task[None]] = set()
        self._children: set[asyncio.subprocess.Process] = set()
        self._spent: dict[
            int, asyncio.Task[int]
        ] = {}  # by place: the life of the worker that another replaced
        self._stopping = asyncio.Event()
        self._changing = asyncio.Lock()
        self._codes: list[int] = []
        self.up = asyncio.Event()  # the first worker has sent its report, or never will
        self.report: StartReport | None = None

    async def run(self) -> int:
        """Until all workers have ended for good; returns the exit code for that."""
        processes.inherit_orphans()
        reaping = asyncio.create_task(self._reap_orphans())
        try:
            await asyncio.gather(*(self._keep(place) for place in range(self._processes)))
            await asyncio.gather(*self._spent.values())
            await self._leases_ended()
        finally:
            reaping.cancel()
            processes.kill_strays(set())
        for code in (BAD_INPUT, HALTED):
            if code in self._codes:
                return code
        return DONE if all(code == DONE for code in self._codes) else FAILED

    def stop(self, *, at_once: bool = False) -> None:
        """Ask the workers to end when their jobs have, or at once."""
        if self._children:
            log.info("stopping %d worker processes%s", len(self._children), " at once" if at_once else "")
        self._stopping.set()
        self.up.set()
        for child in self._children:
            with suppress(ProcessLookupError):
                child.send_signal(AT_ONCE if at_once else GENTLY)

    async def _keep(self, place: int) -> None:
        if place > 0:  # when the first has come up: what is wrong with it is logged once
            await self.up.wait()
        pause = 0.0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._until_replaced(place)
            if code == RECYCLED and not self._stopping.is_set():
                log.info("a worker process has run the jobs that it may: another takes its place")
                pause = 0.0
                continue
            if self._stopping.is_set() or code in self._last:
                self._codes.append(DONE if code == RECYCLED else code)
                if place == 0:
                    self.up.set()
                if code == BAD_INPUT and not self._stopping.is_set():
                    self.stop()  # the others would fail for the same reason
                return
            if time.monotonic() - began > STEADY:
                pause = 0.0
            if code == DONE:
                log.warning("a worker process was stopped, but not by its supervisor: it is replaced")
                pause = max(
                    pause, FIRST_PAUSE
                )  # a program that stops all processes of a service reaches us within it
            log.warning("starting another worker in %.1f s", pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)

    async def _until_replaced(self, place: int) -> int:
        """One worker until it has ended, or takes no more jobs; returns how it ended."""
        spent = asyncio.Event()
        if self._burst:
            return await self._live(spent)
        life, waiting = asyncio.create_task(self._live(spent)), asyncio.create_task(spent.wait())
        await asyncio.wait([life, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if (before := self._spent.get(place)) is not None:
            # Two at a time, or they would become more and more while jobs take longer than processes to start.
            await asyncio.wait([life, before], return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            return life.result()
        life.add_done_callback(self._replaced)
        self._spent[place] = life
        return RECYCLED

    def _replaced(self, life: asyncio.Task[int]) -> None:
        if life.result() == HALTED:
            self._codes.append(HALTED)

    async def _live(self, spent: asyncio.Event) -> int:
        """One worker from its start until all that it left is gone; returns how it ended."""
        reader, writer = os.pipe()
        under = f"{os.getpid()}:{writer}"
        mark = secrets.token_hex(8)  # by which all that comes of this worker is known
        try:
            # One at a time, because the end of one kills all that are not known. From the main thread, because a
            # worker ends with the thread that started it; in a group of its own, because a Ctrl-C shall reach
            # the parent alone, which asks its workers to end.
            async with self._changing:
                child = await asyncio.create_subprocess_exec(
                    *self._argv,
                    "--under",
                    under,
                    pass_fds=[writer],
                    process_group=0,
                    stdin=asyncio.subprocess.DEVNULL,
                    env=os.environ | {MARK: mark},
                )
                self._children.add(child)
        except OSError as error:
            log.error("a worker process cannot be started: %s", error)  # noqa: TRY400 - no fault of the code
            os.close(reader)
            return DIED
        finally:
            os.close(writer)
        if self._stopping.is_set():  # the others were stopped while this one was being started
            child.send_signal(GENTLY)
        messages = _Messages(reader, self._started, spent)
        try:
            code = await self._ended(child)
        finally:
            self._children.discard(child)
        async with self._changing:
            left = processes.kill_strays(self._pids(), f"{MARK}={mark}")
        if left:
            log.warning("killed %d processes that worker process %d left behind", len(left), child.pid)
        # What it wrote is there. The pipe's end may never come: others may have inherited it.
        report, goodbye = messages.close()
        if code in MEANT and (goodbye or report is None):
            return code
        if report is None and self._stopping.is_set():
            return DONE  # it had not begun, so it could not know how to end
        log.error("worker process %d died: %s", child.pid, processes.cause_of_death(code))
        if report and report.recovery:
            ending = asyncio.create_task(self._end_leases(report, processes.cause_of_death(code)))
            self._ending_leases.add(ending)
            ending.add_done_callback(self._ending_leases.discard)
            await asyncio.wait([ending], timeout=SOON)
        return FAILED if report is None or (code == FAILED and goodbye) else DIED

    def _pids(self) -> set[int]:
        return {child.pid for child in self._children}

    async def _reap_orphans(self) -> None:
        """Those that we inherited from living workers: when they end, nobody else waits for them."""
        while True:
            await asyncio.sleep(REAP_EVERY)
            async with self._changing:
                processes.reap_zombies(self._pids())

    async def _ended(self, child: asyncio.subprocess.Process) -> int:
        """Its exit code, once it has ended; a worker that does not end in time is killed."""
        waiting = asyncio.create_task(child.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            await asyncio.wait([waiting], timeout=self._grace + FAREWELL)
        if not waiting.done():
            log.error("worker process %d does not end: killing it", child.pid)
            child.kill()
        stopping.cancel()
        return await waiting

    def _started(self, report: StartReport) -> None:
        self.report = report
        self.up.set()

    async def _leases_ended(self) -> None:
        """Wait until the leases of dead workers are ended; not for long once we are to stop, because others wait for us."""
        if not self._ending_leases:
            return
        stopping = asyncio.create_task(self._stopping.wait())
        all_have: asyncio.Task[Any] = asyncio.create_task(asyncio.wait(self._ending_leases))
        await asyncio.wait([all_have, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await asyncio.wait([all_have], timeout=LAST_TRY)
        if not all_have.done():
            all_have.cancel()
            log.warning("the store does not answer: the leases of workers that died will run out")
        await end(self._ending_leases)

    async def _end_leases(self, report: StartReport, why: str) -> None:
        """End the leases of a worker that died, on its behalf. If that fails they run out."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                async with existing_store(report.store) as store:
                    await Reaper(store).recover(of=report.id, cause=why)
            except (ConfigError, SchemaError) as error:  # no other try would end otherwise
                log.warning("the leases of %s, if it had any, will run out: %s", report.id, error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the other workers must not suffer from it
                log.warning("the leases of %s could not be ended, will try again: %s", report.id, error)
            else:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)
                return


class _Messages:
    """Reads which store a worker uses, which only it knows, having loaded the app; that it is spent; and its goodbye.

    A worker that ends without one was ended by a handler, whatever its exit code.
    """

    def __init__(self, fd: int, started: Callable[[StartReport], None], spent: asyncio.Event) -> None:
        self._fd = fd
        self._spent = spent
        self._started = started
        self._text = b""
        self._report: StartReport | None = None
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    def close(self) -> tuple[StartReport | None, bool]:
        """Of a worker that has ended: its report, and whether it sent GOODBYE."""
        self._read()
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        return self._report, self._text == GOODBYE

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while some := os.read(self._fd, 65536):
                self._text += some
            asyncio.get_running_loop().remove_reader(self._fd)  # nobody can write to it any more
        if self._report is None and b"\n" in self._text:
            line, _, self._text = self._text.partition(b"\n")
            self._report = StartReport(**json.loads(line))
            self._started(self._report)
        if self._report is not None and self._text.startswith(SPENT):
            self._text = self._text.removeprefix(SPENT)
            self._spent.set()


@contextmanager
def reporting(under: str, report: StartReport) -> Iterator[Callable[[], None]]:
    """In the worker: end with the parent, report to it, and in the end send GOODBYE. Yields what reports that it is spent."""
    parent, _, fd = under.partition(":")
    os.set_inheritable(int(fd), False)
    processes.die_with_parent(GENTLY, int(parent))
    with os.fdopen(int(fd), "wb", buffering=0) as parent_pipe:
        os.register_at_fork(after_in_child=parent_pipe.close)  # a fork must not report for the worker
        _send(parent_pipe, json.dumps(asdict(report)).encode() + b"\n")
        try:
            yield lambda: _send(parent_pipe, SPENT)
        finally:
            _send(parent_pipe, GOODBYE)


def _send(pipe: FileIO, line: bytes) -> None:
    with suppress(BrokenPipeError):  # the parent is gone: then nobody needs to know
        if not pipe.closed:
            pipe.write(line)


def command(arguments: Sequence[str]) -> list[str]:
    """How to start this program again as a worker."""
    return [sys.executable, "-m", "unstuck", *arguments]
