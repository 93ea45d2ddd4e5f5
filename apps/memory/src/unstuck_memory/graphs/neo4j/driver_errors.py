"""Translates the driver's errors into ours, so that few other modules need to know the driver."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from neo4j import exceptions

from unstuck_memory.errors import GraphDamaged, GraphUnavailable, SettingsError, UnstuckMemoryError

# The server rolled the transaction back, and it may succeed in a moment: a deadlock, a lock that was not granted in the time that the
# server's settings allow, a leader that steps down, a name that somebody else took between our look and our write.
_AGAIN = (
    "Neo.TransientError.",
    "Neo.ClientError.Transaction.LockClientStopped",
    "Neo.ClientError.Cluster.NotALeader",
    "Neo.ClientError.General.ForbiddenOnReadOnlyDatabase",
    "Neo.ClientError.Schema.ConstraintValidationFailed",
)
# The same in a longer while.
_LATER = (
    "Neo.ClientError.Transaction.",
    "Neo.ClientError.Database.DatabaseUnavailable",
    "Neo.DatabaseError.General.OutOfMemoryError",
    "Neo.DatabaseError.Transaction.",
)
_DAMAGED = (
    "Neo.DatabaseError.General.IndexCorruptionDetected",
    "Neo.DatabaseError.General.StorageDamageDetected",
)
LOST = (exceptions.ServiceUnavailable, exceptions.SessionExpired, OSError)
"""The connection was lost before an answer came."""


def rolled_back(error: BaseException | None) -> bool:
    """Whether the server undid the transaction, and the same may succeed in a moment."""
    return isinstance(error, exceptions.Neo4jError) and (error.code or "").startswith(_AGAIN)


def lost(error: BaseException | None) -> bool:
    """Whether the connection was lost before a commit was sent."""
    return isinstance(error, LOST) and not isinstance(error, exceptions.IncompleteCommit)


@contextmanager
def translated_errors(uri: str, database: str) -> Iterator[None]:
    try:
        yield
    except exceptions.Neo4jError as error:
        raise _translated(error, uri, database) from error
    except (exceptions.ConfigurationError, exceptions.AuthConfigurationError) as error:
        raise SettingsError(
            f"this is not how a Neo4j server is reached: {_line(error)}; write its address as neo4j://host:7687 or bolt://host:7687"
        ) from error
    except exceptions.IncompleteCommit as error:
        raise GraphUnavailable(
            f"the connection to {uri} was lost during a commit, so it is not known whether the change was made: look, or do it again"
        ) from error
    except (*LOST, TimeoutError, exceptions.ConnectionPoolError, exceptions.ResultError) as error:
        if (untrusted := _untrusted(error)) is not None:
            raise SettingsError(
                f"the certificate of {uri} is not trusted ({untrusted.verify_message}): add its authority's certificate to the "
                "system's, name its file in SSL_CERT_FILE, or write +ssc instead of +s in the address if it is self-signed"
            ) from error
        raise GraphUnavailable(f"{uri} cannot be used now: {_line(error)}; try again later") from error
    except exceptions.DriverError as error:
        raise UnstuckMemoryError(f"the driver refused: {_line(error)}") from error


def _translated(error: exceptions.Neo4jError, uri: str, database: str) -> UnstuckMemoryError:
    code = error.code or ""
    if code.startswith(_DAMAGED):
        return GraphDamaged(f"database {database!r} is damaged: {_line(error)}; restore it from a backup")
    if code.startswith("Neo.ClientError.Database.DatabaseNotFound"):
        return SettingsError(f"{uri} has no database {database!r}: name one of its databases, often 'neo4j'")
    if code.startswith("Neo.ClientError.Security."):
        return SettingsError(f"{uri} refuses us: {_line(error)}; check user name, password and privileges")
    if rolled_back(error) or code.startswith(_LATER):
        return GraphUnavailable(f"{uri} cannot do this now: {_line(error)}; try again later")
    if "IndexNotFound" in code or "There is no such" in str(error.message):
        return GraphDamaged(f"database {database!r} lacks indexes of the graph: run unstuck-memory init")
    return UnstuckMemoryError(f"{uri} refused: {_line(error)}")


def _untrusted(error: BaseException) -> ssl.SSLCertVerificationError | None:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__
    return cause


def _line(error: BaseException) -> str:
    """The server's message in one short line."""
    text = error.message if isinstance(error, exceptions.Neo4jError) and error.message else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
