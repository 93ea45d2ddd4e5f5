"""Translates the driver's errors into ours, so that no other module needs to know the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from unstuck.protocol.errors import ConfigError, StoreError, StoreUnavailable

# The first words of temporary errors: the server is loading, was demoted, is full, or cannot write to its disk.
_PASSING = (
    "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "BUSY", "NOREPLICAS", "UNBLOCKED",
)  # fmt: skip
# From some of them the driver removes the first word.
_PASSING_TOO = (
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.MasterDownError,
    exceptions.AskError,  # and its subclass MovedError: the key moved again and again
)
_REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "invalid DB", "DB index")
_UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "[X509", "PEM lib")
_MUTE = "Timeout connecting to server"  # also the error of a TLS client at a server without TLS
_KNOWN = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the driver's errors as ours, and raise a cancellation again that the driver dropped.

    On Python 3.11 the driver drops two of three cancellations that arrive during a call (see :mod:`unstuck.background`).
    """
    before = _cancellations()
    try:
        with _translated():
            yield
    except Exception:
        if _cancellations() > before:
            raise asyncio.CancelledError from None
        raise
    if _cancellations() > before:
        raise asyncio.CancelledError


def _cancellations() -> int:
    """How often the current task was cancelled so far."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _KNOWN as error:
        raise ConfigError(f"the server refuses us: {message_of(error)}") from None
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError) as error:
        text = message_of(error)
        _refuse(text)
        raise StoreUnavailable(f"the server cannot be used now: {text}") from error
    except exceptions.ResponseError as error:
        text = message_of(error)
        if text.startswith(_REFUSED):
            raise ConfigError(f"the server refuses us: {text}") from None
        if isinstance(error, _PASSING_TOO) or text.startswith(_PASSING):
            raise StoreUnavailable(f"the server cannot be used now: {text}") from error
        raise StoreError(f"the server refused: {text}") from error
    except exceptions.RedisClusterException as error:
        text = message_of(error)
        _refuse(text)
        if "not enabled" in text:
            raise ConfigError(
                f"the server is not part of a cluster: remove cluster=yes from the store's URL ({text})"
            ) from None
        raise StoreUnavailable(f"the cluster cannot be used now: {text}") from error
    except exceptions.RedisError as error:
        raise StoreError(f"the server refused: {message_of(error)}") from error
    except (AttributeError, RuntimeError) as error:
        # The driver, and asyncio of some Pythons 3.12 and 3.13, raise these for a connection that was closed meanwhile.
        text = message_of(error)
        if "'NoneType' object has no attribute" not in text and "closed" not in text:
            raise
        raise StoreUnavailable(f"the connection to the server was closed: {text}") from error


def _refuse(text: str) -> None:
    """Raise an error that trying again does not solve."""
    if any(word in text for word in _REFUSED):
        raise ConfigError(f"the server refuses us: {text}") from None
    if any(word in text for word in _UNTRUSTED):
        raise ConfigError(
            "the TLS certificates do not match: ssl_ca_certs in the store's URL names the file of the authorities that sign the "
            f"server's certificate for the name in the URL, ssl_certfile and ssl_keyfile are the client's own ({text})"
        ) from None


def message_of(error: BaseException) -> str:
    """The server's message in one line. The driver names the address that it tried, never a password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = (lines[0] if lines else type(error).__name__)[:300]
    return (
        f"{text}; use rediss:// for a server with TLS, and redis:// for one without"
        if text == _MUTE
        else text
    )
