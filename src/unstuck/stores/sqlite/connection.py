"""Opens the file the way a queue needs it."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from unstuck.protocol.errors import ConfigError, SchemaError
from unstuck.stores.shared.statements import statements

APPLICATION = 0x756E7374  # "unst", in the file's header: distinguishes our files from those of other programs
MIGRATIONS = ("unstuck.stores.sqlite", "sql/migrations")
PATIENCE = 60.0  # seconds to wait for other processes' writes before giving up
creating = threading.RLock()  # no thread opens the file between its creation and the close that follows


def create(path: str) -> None:
    """Create the file, readable by its owner only, if it does not exist; its -wal and -shm get the same mode.

    An existing file is not opened here: closing *any* descriptor of a file drops all locks that this process
    has on it, and SQLite's with them. Another process would then delete the log that we write to.
    """
    with creating:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if Path(path).is_dir() or not os.access(path, os.R_OK | os.W_OK):
                why = "Is a directory" if Path(path).is_dir() else "Permission denied"
                raise ConfigError(f"store file {path!r} cannot be opened for writing: {why}") from None
        except FileNotFoundError:
            raise ConfigError(
                f"store file {path!r}: the folder {str(Path(path).parent)!r} does not exist; create it"
            ) from None
        except OSError as error:
            raise ConfigError(f"store file {path!r} cannot be opened for writing: {error.strerror}") from None


def connect(path: str, give_up: Callable[[], bool] = lambda: False) -> apsw.Connection:
    """Open an existing file. ``give_up`` is called while another process writes; if it returns true, the wait ends."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_handler(_waiting(PATIENCE, give_up))
        _must_be_ours(connection)
        _use_log(connection, give_up)
        connection.pragma("synchronous", "full")
        connection.pragma("foreign_keys", False)
        connection.pragma("temp_store", "memory")
        connection.pragma("cache_size", -16 * 1024)  # KiB: the hot parts of a large queue
        connection.pragma("wal_autocheckpoint", 4000)  # pages: fewer, larger copies into the main file
    except BaseException:
        connection.close()
        raise
    return connection


def _use_log(connection: apsw.Connection, give_up: Callable[[], bool]) -> None:
    """Have the file use a write-ahead log. Connections that change a new file at once would wait for each other, so SQLite
    refuses them without calling the handler.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > end or give_up():
                raise
            time.sleep(random.uniform(0.0002, 0.004))  # noqa: S311 - not a secret
        else:
            return


def _must_be_ours(connection: apsw.Connection) -> None:
    """Refuse another program's database before anything in it is changed, also its journal mode."""
    # In one statement, because another process may be creating the tables at this moment.
    all_three = (
        "SELECT application_id, user_version, EXISTS (SELECT 1 FROM sqlite_schema) "
        "FROM pragma_application_id, pragma_user_version"
    )
    [(application, needed, used)] = connection.execute(all_three)
    if used and application != APPLICATION:
        raise SchemaError(
            f"store file {connection.filename!r} belongs to another program: give the queue a file of its own"
        )
    refuse_newer(needed)


def refuse_newer(needed: int) -> None:
    """Raise if this release cannot work on the file: ``needed`` is the version that it must know, the file's user_version."""
    newest = len(statements(*MIGRATIONS))
    if needed > newest:
        raise SchemaError(
            f"the store's schema needs a release that knows version {needed}; "
            f"this one knows up to {newest}: upgrade unstuck"
        )


def _waiting(patience: float, give_up: Callable[[], bool]) -> Callable[[int], bool]:
    # SQLite's own wait grows to 100 ms and lets the same process win again and again;
    # short random pauses give sixteen processes about equal turns.
    started = 0.0

    def wait(tries: int) -> bool:
        nonlocal started
        now = time.monotonic()
        if tries == 0:
            started = now
        if now - started >= patience or give_up():
            return False
        time.sleep(random.uniform(0.0002, 0.004))  # noqa: S311 - not a secret
        return True

    return wait
