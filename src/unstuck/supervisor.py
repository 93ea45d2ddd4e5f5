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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import FileIO

from unstuck import kin
from unstuck.errors import ConfigError, SchemaError
from unstuck.reaper import Reaper
from unstuck.stores import existing_store

log = logging.getLogger("unstuck.supervisor")

# What a supervisor says to its workers. Whatever else asks a worker to end means GENTLY, however often it comes,
# because some who stop a service signal its parent and its children alike.
GENTLY, AT_ONCE = signal.SIGTERM, signal.SIGUSR1
DONE, FAILED, BAD_INPUT, HALTED = 0, 1, 2, 3  # exit codes that mean something if the worker said goodbye
DIED = -1  # it did not: no exit code, whatever the process ended with
LAST = (DONE, BAD_INPUT, HALTED)  # those after which no other worker is started
MARK = "UNSTUCK_WORKER"
BURIAL = 1.0  # seconds
GOODBYE = b"goodbye\n"
STEADY = 60.0  # seconds after which a worker's death is not held against the next one
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a restart, after the first one, which comes at once
FAREWELL = 30.0  # seconds beyond the grace until a worker that does not end is killed
PATIENCE = 30.0  # seconds to try to tell the store of a death
SOON = 2.0  # seconds of them that the next worker waits for, so that it finds what the dead one held


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker says of itself when it starts, so that its parent can speak for it when it is dead."""

    id: str
    store: str
    recovery: float


class Supervisor:
    """Keeps ``processes`` workers running, each started by ``argv`` and an option that names its parent.

    A worker that dies has its leases ended at once, with the signal or exit code as the cause, and is
    started again, later and later. One that halted, or that was told something wrong, is not; nor, in a
    ``burst``, one that failed before it took a job, or by itself.
    """

    def __init__(self, argv: Sequence[str], *, processes: int, grace: float, burst: bool = False) -> None:
        self._argv = tuple(argv)
        self._processes = processes
        self._grace = grace
        self._last = (*LAST, FAILED) if burst else LAST
        self._speaking: set[asyncio.Task[None]] = set()
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._changing = asyncio.Lock()
        self._codes: list[int] = []
        self.up = asyncio.Event()  # the first worker has come up and told us of itself, or never will
        self.told: Told | None = None

    async def run(self) -> int:
        """Until all workers have ended for good; answers with the exit code that says how."""
        kin.inherit_orphans()
        burying = asyncio.create_task(self._bury_orphans())
        try:
            await asyncio.gather(*(self._keep(place) for place in range(self._processes)))
            await asyncio.gather(*self._speaking)
        finally:
            burying.cancel()
            kin.end_strays(set())
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
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.send_signal(AT_ONCE if at_once else GENTLY)

    async def _keep(self, place: int) -> None:
        if place > 0:  # when the first has come up: what is wrong with it is told once
            await self.up.wait()
        pause = 0.0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._live(place)
            if self._stopping.is_set() or code in self._last:
                self._codes.append(code)
                if place == 0:
                    self.up.set()
                if code == BAD_INPUT and not self._stopping.is_set():
                    self.stop()  # the others would be told the same
                return
            if time.monotonic() - began > STEADY:
                pause = 0.0
            log.warning("starting another worker in %.1f s", pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)

    async def _live(self, place: int) -> int:
        """One worker from its start to its burial; answers how it ended."""
        hears, tells = os.pipe()
        under = f"{os.getpid()}:{tells}"
        mark = secrets.token_hex(8)  # by which all that comes of this worker is known
        try:
            # One at a time, because burying one kills all that are not known. From the main thread, because a
            # worker ends with the thread that started it; in a group of its own, because a Ctrl-C shall reach
            # the parent alone, which asks its workers to end.
            async with self._changing:
                child = await asyncio.create_subprocess_exec(
                    *self._argv,
                    "--under",
                    under,
                    pass_fds=[tells],
                    process_group=0,
                    stdin=asyncio.subprocess.DEVNULL,
                    env=os.environ | {MARK: mark},
                )
                self._children[place] = child
        except OSError as error:
            log.error("a worker process cannot be started: %s", error)  # noqa: TRY400 - no fault of the code
            os.close(hears)
            return DIED
        finally:
            os.close(tells)
        if self._stopping.is_set():  # the others were told while this one came into being
            child.send_signal(GENTLY)
        listening = asyncio.create_task(self._listen(hears))
        try:
            code = await self._ended(child)
        finally:
            del self._children[place]
        async with self._changing:
            left = kin.end_strays(self._pids(), f"{MARK}={mark}")
        if left:
            log.warning("killed %d processes that worker process %d left behind", len(left), child.pid)
        told, goodbye = await listening  # the pipe has ended with the worker
        if code in LAST and (goodbye or told is None):
            return code
        if told is None and self._stopping.is_set():
            return DONE  # it had not begun, so it could not know how to end
        log.error("worker process %d died: %s", child.pid, kin.cause_of_death(code))
        if told and told.recovery:
            speaking = asyncio.create_task(self._speak_for(told, kin.cause_of_death(code)))
            self._speaking.add(speaking)
            speaking.add_done_callback(self._speaking.discard)
            await asyncio.wait([speaking], timeout=SOON)
        return FAILED if told is None or (code == FAILED and goodbye) else DIED

    def _pids(self) -> set[int]:
        return {child.pid for child in self._children.values()}

    async def _bury_orphans(self) -> None:
        """Those that we inherited from living workers: when they end, nobody else waits for them."""
        while True:
            await asyncio.sleep(BURIAL)
            async with self._changing:
                kin.bury(self._pids())

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

    async def _listen(self, fd: int) -> tuple[Told | None, bool]:
        """Hear which store the worker uses, which only it knows, having loaded the app; and its goodbye.

        A worker that ends without one was ended by a handler, whatever its exit code.
        """
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
        )
        try:
            if not (line := await reader.readline()):
                return None, False
            self.told = told = Told(**json.loads(line))
            self.up.set()
            return told, await reader.readline() == GOODBYE
        finally:
            transport.close()

    async def _speak_for(self, told: Told, why: str) -> None:
        """End the leases of a worker that died, on its behalf. If that fails they run out."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                async with existing_store(told.store) as store:
                    await Reaper(store).recover(of=told.id, cause=why)
            except (ConfigError, SchemaError) as error:  # no other try would end otherwise
                log.warning("the leases of %s, if it had any, will run out: %s", told.id, error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the other workers must not suffer from it
                log.warning("the leases of %s could not be ended, will try again: %s", told.id, error)
            else:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)
                return


@contextmanager
def telling(under: str, told: Told) -> Iterator[None]:
    """In the worker: be bound to the parent, tell it what it needs to know, and in the end say goodbye."""
    parent, _, fd = under.partition(":")
    os.set_inheritable(int(fd), False)
    kin.die_with_parent(GENTLY, int(parent))
    with os.fdopen(int(fd), "wb", buffering=0) as parents_ear:
        _say(parents_ear, json.dumps(asdict(told)).encode() + b"\n")
        try:
            yield
        finally:
            _say(parents_ear, GOODBYE)


def _say(ear: FileIO, line: bytes) -> None:
    with suppress(BrokenPipeError):  # the parent is gone: then nobody needs to know
        ear.write(line)


def command(arguments: Sequence[str]) -> list[str]:
    """How to start this program again as a worker."""
    return [sys.executable, "-m", "unstuck", *arguments]
