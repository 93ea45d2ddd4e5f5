"""Translates the driver's errors into ours, so that few other modules need to know the driver."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from neo4j import exceptions

from unstuck.protocol.errors import ConfigError, SchemaError, StoreDamaged, StoreError, StoreUnavailable
from unstuck.text.redact import redact

# A deadlock, a leader that steps down, a lock that was not granted: the server rolled the transaction back.
_AGAIN = (
    "Neo.TransientError.",
    "Neo.ClientError.Cluster.NotALeader",
    "Neo.ClientError.General.ForbiddenOnReadOnlyDatabase",
)
# Temporary errors. Some codes blame the client, although only time ran out.
_PASSING = (
    "Neo.ClientError.Transaction.LockClientStopped",
    "Neo.ClientError.Transaction.TransactionTimedOut",
    "Neo.ClientError.Transaction.TransactionTerminated",
    "Neo.ClientError.Transaction.Terminated",
    "Neo.ClientError.Database.DatabaseUnavailable",
    "Neo.DatabaseError.General.OutOfMemoryError",
    "Neo.DatabaseError.Transaction.TransactionCommitFailed",
    "Neo.DatabaseError.Transaction.TransactionStartFailed",
    "Neo.DatabaseError.Transaction.TransactionLogError",
)
_DAMAGED = (
    "Neo.DatabaseError.General.IndexCorruptionDetected",
    "Neo.DatabaseError.General.StorageDamageDetected",
)
_REFUSED = ("Neo.ClientError.Security.", "Neo.ClientError.Database.DatabaseNotFound")
_MISSING = ("Neo.ClientError.Schema.IndexNotFound", "Neo.DatabaseError.Schema.IndexNotFound")
# How the driver's message continues after any failure of the TLS handshake.
_SECURED = "Connection Failed. Please ensure"
LOST = (exceptions.ServiceUnavailable, exceptions.SessionExpired, OSError)
"""Errors after which it is unknown whether the server ran the statement."""


def passes(error: exceptions.Neo4jError) -> bool:
    """Whether the server rolled back, and the same may succeed in a moment."""
    return (error.code or "").startswith(_AGAIN)


@contextmanager
def translated_errors(database: str) -> Iterator[None]:
    try:
        yield
    except exceptions.Neo4jError as error:
        raise _translated(error, database) from error
    except (exceptions.ConfigurationError, exceptions.AuthConfigurationError) as error:
        raise ConfigError(f"the server cannot be used with this URL: {message_of(error)}") from error
    except (*LOST, TimeoutError, exceptions.ConnectionPoolError, exceptions.ResultError) as error:
        _refuse_untrusted(error)
        raise StoreUnavailable(f"the server cannot be used now: {message_of(error)}") from error
    except exceptions.DriverError as error:
        raise StoreError(f"the driver refused: {message_of(error)}") from error


def _translated(error: exceptions.Neo4jError, database: str) -> StoreError | ConfigError:
    code = error.code or ""
    if code.startswith(_DAMAGED):
        return StoreDamaged(f"the database is damaged: {message_of(error)}")
    if code.startswith("Neo.ClientError.Database.DatabaseNotFound"):
        return ConfigError(
            f"there is no database {database!r}: on Enterprise unstuck init creates it; on Community, which has only one, name "
            "that one in the store's URL, or give it this name before its first start (initial.dbms.default_database)"
        )
    if code.startswith(_REFUSED):
        return ConfigError(f"the server refuses us: {message_of(error)}")
    if code.startswith(_MISSING) or "No such index" in str(error.message):
        return SchemaError(f"database {database!r} lacks indexes that this release needs: run unstuck init")
    if passes(error) or code.startswith(_PASSING):
        return StoreUnavailable(f"the server cannot be used now: {message_of(error)}")
    return StoreError(f"the server refused: {message_of(error)}")


def _refuse_untrusted(error: BaseException) -> None:
    """Raise ConfigError for an untrusted certificate, because trying again does not help."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__
    if cause is not None:
        raise ConfigError(
            f"the server's certificate is not trusted ({cause.verify_message}): add the certificate of its authority to the system's, or "
            "name its file in SSL_CERT_FILE; for a self-signed certificate write +ssc instead of +s in the store's URL"
        ) from error


def message_of(error: BaseException) -> str:
    """The server's message in one line."""
    text = error.message if isinstance(error, exceptions.Neo4jError) and error.message else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    before, secured, _ = text.partition(_SECURED)
    if secured:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        why = f" ({cause})" if str(cause) else ""
        text = f"{before}the TLS handshake failed{why}; if the server has no TLS, write the store's URL without +s"
    return redact(text, 300)
