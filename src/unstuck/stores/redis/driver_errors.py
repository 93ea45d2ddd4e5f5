"""Translates the driver's errors into ours, so that no other module needs to know the driver."""

from __future__ import annotations

import asyncio

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


class translated_errors:  # noqa: N801 - used as contextlib.suppress is
    """Raise the driver's errors as ours, and raise a cancellation again that the driver dropped.

    On Python 3.11 the driver drops two of three cancellations that arrive during a call (see :mod:`unstuck.background`).
    Every call to the server enters one: as generators, the two steps of it took a twentieth of an enqueue.
    """

    __slots__ = ("_before", "_task")

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        passes = error is None or isinstance(error, Exception)
        if passes and self._task is not None and self._task.cancelling() > self._before:
            raise asyncio.CancelledError from None
        if isinstance(error, Exception) and (ours := _translated(error)) is not None:
            raise ours from (None if isinstance(ours, ConfigError) else error)


def _translated(error: Exception) -> StoreError | ConfigError | None:
    """Our error for one of the driver's; None for any other."""
    text = message_of(error)
    match error:
        case (
            exceptions.AuthenticationError()
            | exceptions.AuthorizationError()
            | exceptions.NoPermissionError()
        ):
            return ConfigError(f"the server refuses us: {text}")
        case (
            exceptions.ConnectionError() | exceptions.TimeoutError() | OSError()
        ):  # the last has Python's own TimeoutError
            return _refusal(text) or StoreUnavailable(f"the server cannot be used now: {text}")
        case exceptions.ResponseError():
            if text.startswith(_REFUSED):
                return ConfigError(f"the server refuses us: {text}")
            if isinstance(error, _PASSING_TOO) or text.startswith(_PASSING):
                return StoreUnavailable(f"the server cannot be used now: {text}")
            return StoreError(f"the server refused: {text}")
        case exceptions.RedisClusterException():
            if "not enabled" in text:
                return _refusal(text) or ConfigError(
                    f"the server is not part of a cluster: remove cluster=yes from the store's URL ({text})"
                )
            return _refusal(text) or StoreUnavailable(f"the cluster cannot be used now: {text}")
        case exceptions.RedisError():
            return StoreError(f"the server refused: {text}")
        case AttributeError() | RuntimeError():
            # The driver, and asyncio of some Pythons 3.12 and 3.13, raise these for a connection that was closed meanwhile.
            if "'NoneType' object has no attribute" in text or "closed" in text:
                return StoreUnavailable(f"the connection to the server was closed: {text}")
    return None


def _refusal(text: str) -> ConfigError | None:
    """An error that trying again does not solve, if it is one."""
    if any(word in text for word in _REFUSED):
        return ConfigError(f"the server refuses us: {text}")
    if any(word in text for word in _UNTRUSTED):
        return ConfigError(
            "the TLS certificates do not match: ssl_ca_certs in the store's URL names the file of the authorities that sign the "
            f"server's certificate for the name in the URL, ssl_certfile and ssl_keyfile are the client's own ({text})"
        )
    return None


def message_of(error: BaseException) -> str:
    """The server's message in one line. The driver names the address that it tried, never a password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = (lines[0] if lines else type(error).__name__)[:300]
    return (
        f"{text}; use rediss:// for a server with TLS, and redis:// for one without"
        if text == _MUTE
        else text
    )
