"""Translates the driver's errors into ours, so that no other module needs to know the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from unstuck.protocol.errors import SchemaError, StoreDamaged, StoreError, StoreUnavailable

_UNAVAILABLE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.NoMemError,
)


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreDamaged(f"store file {path!r} is damaged or not a SQLite database: {error}") from error
    except _UNAVAILABLE as error:
        raise StoreUnavailable(f"store file {path!r} cannot be used now: {error}") from error
    except apsw.SQLError as error:
        if str(error).startswith(("no such table", "no such column")):
            raise SchemaError(
                f"store file {path!r} lacks what this release needs ({error}): run unstuck init"
            ) from error
        raise StoreError(f"store file {path!r}: {error}") from error
    except apsw.Error as error:
        raise StoreError(f"store file {path!r}: {error}") from error
