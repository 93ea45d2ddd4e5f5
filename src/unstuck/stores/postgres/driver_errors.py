"""Translates the driver's errors into ours, so that no other module needs to know the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from unstuck.protocol.errors import ConfigError, SchemaError, StoreDamaged, StoreError, StoreUnavailable

# Refusals of the server before there is a session; the driver has no code for these, only the text.
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|authentication failed|role .* does not exist"
    r"|database .* does not exist|no pg_hba.conf entry|is not permitted to log in|certificate verify failed"
    r"|permission denied for database|server does not support SSL|could not translate host name"
    r"|certificate .*(expired|revoked)|invalid (value|integer value|sslmode value)",
    re.IGNORECASE,
)
_UNAVAILABLE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.InsufficientResources,
    errors.ActiveSqlTransaction,
    errors.LockNotAvailable,
)


class JobExists(StoreError):
    """A job that was expected to be new has the queue and id of another one."""


_MISSING = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)
_DAMAGED = (errors.DataCorrupted, errors.IndexCorrupted)


@contextmanager
def translated_errors(schema: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise StoreDamaged(f"the database is damaged: {message_of(error)}") from error
    except _MISSING as error:
        raise SchemaError(
            f"schema {schema!r} lacks what this release needs ({message_of(error)}): run unstuck init"
        ) from error
    except errors.InsufficientPrivilege as error:
        raise StoreError(f"the database user may not do this: {message_of(error)}") from error
    except _UNAVAILABLE as error:
        if (
            isinstance(error, psycopg.OperationalError)
            and error.sqlstate is None
            and _REFUSED.search(str(error))
        ):
            raise ConfigError(f"the database refuses us: {message_of(error)}") from error
        raise StoreUnavailable(f"the database cannot be used now: {message_of(error)}") from error
    except errors.UniqueViolation as error:
        raise JobExists(f"the database refused: {message_of(error)}") from error
    except psycopg.Error as error:
        raise StoreError(f"the database refused: {message_of(error)}") from error


def message_of(error: psycopg.Error) -> str:
    """The server's own message, in one line."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "FATAL" in line), lines[0])[:500]
