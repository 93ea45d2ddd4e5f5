"""ReopeningConnection: a connection to the file that is closed and opened again where keeping it would lose jobs.

**A fork.** SQLite's table of locks survives it, the locks do not: the child would write without any, and the next process
that closes the file would believe itself the last one and delete the log. So all connections are closed for a fork, and
parent and child open theirs again when they need them.

**A file that was deleted or replaced.** What is written to the old one is lost.

**A descriptor that other code closed.** The locks of the whole process are gone with it, so all its connections are closed.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar
from weakref import WeakSet

import apsw

from unstuck.protocol.errors import StoreUnavailable
from unstuck.stores.sqlite.connection import connect, creating
from unstuck.stores.sqlite.driver_errors import translated_errors

log = logging.getLogger("unstuck.sqlite")

T = TypeVar("T")
File = tuple[int, int]
REST = 10.0  # seconds for a statement to end or give up before a fork
POKE = 0.05  # seconds between two interrupts of a statement


class ReopeningConnection:
    """``reopening.use(work)`` calls ``work`` with the connection, and calls it again if a fork interrupted it.

    ``prepare`` is called with every new connection. ``deserted`` is called while the file is locked by another process; it
    returns whether nobody waits for the answer any more.
    """

    def __init__(
        self,
        path: str,
        prepare: Callable[[apsw.Connection], None] = lambda _: None,
        deserted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._path = path
        self._prepare = prepare
        self._deserted = deserted
        self._lock = threading.RLock()
        self._disturbed = False
        self._file: File | None = None
        self.connection: apsw.Connection | None = None
        self.openings = 0
        with _registry.changing:
            _registry.known.add(self)

    def use(self, work: Callable[[apsw.Connection], T]) -> T:
        with translated_errors(self._path):
            while True:
                _registry.open.wait()
                try:
                    with self._lock:
                        self._disturbed = False
                        return work(self._opened())
                except (apsw.BusyError, apsw.InterruptError):
                    if not self._disturbed:
                        raise
                except apsw.IOError:
                    with _paused(self._path):
                        log.warning(
                            "store file %r failed: its connections are closed and opened again", self._path
                        )
                    raise

    def close(self) -> None:
        with self._lock:
            self._disconnect()
        with _registry.changing:
            _registry.known.discard(self)

    def _opened(self) -> apsw.Connection:
        file = _file(self._path)
        if self.connection is not None and file != self._file:
            log.warning(
                "store file %r is not the one that was opened: it was deleted or replaced", self._path
            )
            self._disconnect()
        if self.connection is None:
            if _registry.spoiled:
                raise StoreUnavailable(
                    f"store file {self._path!r} was in use by another thread when this process was forked, and cannot be "
                    "used safely here: start the process before the file is used, or with spawn instead of fork"
                )
            if file is None:
                raise StoreUnavailable(
                    f"store file {self._path!r} was deleted or moved away: put it back, or make a new one with unstuck init"
                )
            connection = connect(self._path, self._must_give_up)
            if _file(self._path) != file:  # replaced while it was opened: the next try opens the new one
                connection.close()
                raise StoreUnavailable(f"store file {self._path!r} was replaced at this moment: try again")
            self._prepare(connection)
            self.connection, self._file = connection, file
            self.openings += 1
        return self.connection

    def _must_give_up(self) -> bool:
        """Called while another process has the lock."""
        self._disturbed |= not _registry.open.is_set()
        return self._disturbed or self._deserted()

    def _disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        with suppress(apsw.Error):  # the descriptor may be closed already
            if _file(self._path) != self._file:
                # SQLite would delete the log by its name, which is another file's by now.
                keep = ctypes.c_int(1)
                connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(keep))
            connection.close()

    def pause(self, end: float) -> bool:
        """Lock out all users and close the connection; false if the one that uses it does not end in time."""
        while not self._lock.acquire(timeout=POKE):
            self._disturbed = True
            if (connection := self.connection) is not None:
                with suppress(apsw.Error):
                    connection.interrupt()
            if time.monotonic() > end:
                return False
        self._disconnect()
        return True

    def resume(self) -> None:
        self._lock.release()


class _Registry:
    """All connections of this process, and whether they may be used."""

    def __init__(self) -> None:
        self.known: WeakSet[ReopeningConnection] = WeakSet()
        self.changing = threading.Lock()
        self.open = threading.Event()
        self.open.set()
        self.pausing = threading.RLock()
        self.spoiled = False

    def after_fork(self) -> None:
        """In the child: the threads that held these locks do not exist here."""
        self.changing = threading.Lock()
        self.open = threading.Event()


_registry = _Registry()


@contextmanager
def _paused(path: str | None = None) -> Iterator[bool]:
    """Close all connections, or those to one file, and keep them closed during the block; false if one stays in use."""
    with _registry.pausing, creating:
        _registry.open.clear()
        with _registry.changing:
            chosen = [one for one in _registry.known if path in (None, one._path)]  # noqa: SLF001 - ours
        end = time.monotonic() + REST
        paused = [one for one in chosen if one.pause(end)]
        try:
            yield len(paused) == len(chosen)
        finally:
            for one in paused:
                one.resume()
            _registry.open.set()


class _Fork:
    """Keeps the connections closed from before a fork until after it, in parent and child."""

    def before(self) -> None:
        pause = _paused()
        safe = pause.__enter__()
        # Only now: until here another thread may have been in the middle of its own fork.
        self._pause, self._safe = pause, safe

    def after_in_parent(self) -> None:
        self._pause.__exit__(None, None, None)

    def after_in_child(self) -> None:
        _registry.after_fork()
        _registry.spoiled |= not self._safe
        self._pause.__exit__(None, None, None)


_fork = _Fork()
os.register_at_fork(
    before=_fork.before, after_in_parent=_fork.after_in_parent, after_in_child=_fork.after_in_child
)


def _file(path: str) -> File | None:
    """Which file has this name now."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for every call
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"store file {path!r} cannot be examined: {error.strerror}") from error
    return found.st_dev, found.st_ino
