"""Opens the file the way a graph needs it, and translates the driver's errors into ours."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from unstuck_memory.errors import GraphDamaged, GraphUnavailable, UnstuckMemoryError
from unstuck_memory.graphs.statements import statements

APPLICATION = 0x756E736D  # "unsm", in the file's header: distinguishes our files from those of other programs
MIGRATIONS = ("unstuck_memory.graphs.sqlite", "sql/migrations")
PATIENCE = 60.0  # seconds to wait for other processes' writes before giving up

_UNAVAILABLE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.NoMemError,
)
_creating = threading.Lock()  # no thread opens the file between its creation and the close that follows
_opened: Counter[str] = Counter()  # connections of this process, by file
_before_fork: set[str] = set()  # files that were opened by the process of which this one is a fork


def connect(path: str) -> apsw.Connection:
    """Open the file; create it, readable by its owner only, if it does not exist. Its -wal and -shm get the same mode."""
    with translated_errors(path), _creating:
        if path in _before_fork:
            # SQLite's table of locks survives a fork, the locks do not: this process would write without any.
            raise GraphUnavailable(
                f"graph file {path!r} was opened before this process was forked, and cannot be used safely here: "
                "open it after the fork only, or start the process with spawn"
            )
        _create(path)
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        _opened[path] += 1
    try:
        with translated_errors(path):
            _set_up(connection, path)
    except BaseException:
        disconnect(connection, path)
        raise
    return connection


def disconnect(connection: apsw.Connection, path: str) -> None:
    with _creating:
        connection.close()
        _opened[path] -= 1


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise GraphDamaged(
            f"graph file {path!r} is damaged or not a SQLite database ({error}): restore it from an archive or a backup"
        ) from error
    except apsw.BusyError as error:
        raise GraphUnavailable(
            f"graph file {path!r} was locked by another process for {PATIENCE:g} s: end that process, or try again later"
        ) from error
    except _UNAVAILABLE as error:
        raise GraphUnavailable(f"graph file {path!r} cannot be used now: {error}") from error
    except apsw.SQLError as error:
        if str(error).startswith(("no such table", "no such column")):
            raise GraphDamaged(
                f"graph file {path!r} lacks what this release needs ({error}): run unstuck-memory init"
            ) from error
        raise UnstuckMemoryError(f"graph file {path!r}: {error}") from error
    except apsw.Error as error:
        raise UnstuckMemoryError(f"graph file {path!r}: {error}") from error


def refuse_newer(path: str, needed: int) -> None:
    """Raise if this release cannot work on the file, whose schema has that version."""
    newest = len(statements(*MIGRATIONS))
    if needed > newest:
        raise GraphDamaged(
            f"graph file {path!r} has schema version {needed}, this release knows up to {newest}: upgrade unstuck-memory"
        )


def _create(path: str) -> None:
    # An existing file is not opened here: closing any descriptor of a file drops all locks that this process has on it.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if Path(path).is_dir() or not os.access(path, os.R_OK | os.W_OK):
            why = "it is a directory" if Path(path).is_dir() else "permission denied"
            raise GraphUnavailable(f"graph file {path!r} cannot be opened for writing: {why}") from None
    except FileNotFoundError:
        raise GraphUnavailable(
            f"graph file {path!r}: the folder {str(Path(path).parent)!r} does not exist; create it"
        ) from None
    except OSError as error:
        raise GraphUnavailable(f"graph file {path!r} cannot be created: {error.strerror}") from None


def _set_up(connection: apsw.Connection, path: str) -> None:
    connection.set_busy_handler(_Patience())
    _must_be_ours(connection, path)
    _use_log(connection)
    connection.pragma("synchronous", "full")
    connection.pragma("temp_store", "memory")
    connection.pragma("cache_size", -32 * 1024)  # KiB
    connection.pragma("wal_autocheckpoint", 4000)  # pages: fewer, larger copies into the main file


def _use_log(connection: apsw.Connection) -> None:
    """Have the file use a write-ahead log. Connections that change a new file at once would wait for each other, so SQLite
    refuses them without calling the handler.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.0002, 0.004))  # noqa: S311 - not a secret
        else:
            return


def _must_be_ours(connection: apsw.Connection, path: str) -> None:
    """Refuse another program's database before anything in it is changed, also its journal mode."""
    # In one statement, because another process may be creating the tables at this moment.
    all_three = (
        "SELECT application_id, user_version, EXISTS (SELECT 1 FROM sqlite_schema) "
        "FROM pragma_application_id, pragma_user_version"
    )
    [(application, needed, used)] = connection.execute(all_three)
    if used and application != APPLICATION:
        raise GraphDamaged(
            f"graph file {path!r} belongs to another program: give the graph a file of its own"
        )
    refuse_newer(path, needed)


class _Patience:
    """SQLite's own wait grows to 100 ms and lets the same process win again and again.

    Short random pauses give sixteen processes about equal turns.
    """

    def __init__(self) -> None:
        self._began = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._began = now
        if now - self._began >= PATIENCE:
            return False
        time.sleep(random.uniform(0.0002, 0.004))  # noqa: S311 - not a secret
        return True


def _forked() -> None:
    global _creating  # noqa: PLW0603 - a thread that does not exist here may have held it
    _creating = threading.Lock()
    _before_fork.update(path for path, connections in _opened.items() if connections)


os.register_at_fork(after_in_child=_forked)
