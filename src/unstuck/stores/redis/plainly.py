"""Says what went wrong in our own words, so that nothing above needs to know the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from unstuck.errors import ConfigError, StoreError, StoreUnavailable

# The first words of errors that pass: the server loads, was demoted, is full, or cannot write to its disk.
_PASSING = (
    "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "BUSY", "NOREPLICAS", "UNBLOCKED",
)  # fmt: skip
# The driver takes the first word off some of them.
_PASSING_TOO = (
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.MasterDownError,
    exceptions.AskError,  # and MovedError: it moved again and again
)
_REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "invalid DB", "DB index")
_UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "[X509", "PEM lib")
_MUTE = "Timeout connecting to server"  # so is one that does not speak TLS to somebody who does
_KNOWN = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)


@contextmanager
def speaking_plainly() -> Iterator[None]:
    try:
        yield
    except _KNOWN as error:
        raise ConfigError(f"the server refuses us: {said(error)}") from None
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError) as error:
        text = said(error)
        _refuse(text)
        raise StoreUnavailable(f"the server cannot be used now: {text}") from error
    except exceptions.ResponseError as error:
        text = said(error)
        if text.startswith(_REFUSED):
            raise ConfigError(f"the server refuses us: {text}") from None
        if isinstance(error, _PASSING_TOO) or text.startswith(_PASSING):
            raise StoreUnavailable(f"the server cannot be used now: {text}") from error
        raise StoreError(f"the server refused: {text}") from error
    except exceptions.RedisClusterException as error:
        text = said(error)
        _refuse(text)
        if "not enabled" in text:
            raise ConfigError(
                f"the server is none of a cluster: take cluster=yes from the store's URL ({text})"
            ) from None
        raise StoreUnavailable(f"the cluster cannot be used now: {text}") from error
    except exceptions.RedisError as error:
        raise StoreError(f"the server refused: {said(error)}") from error
    except (AttributeError, RuntimeError) as error:
        # So asyncio of some Pythons 3.12 and 3.13, and the driver, speak of a connection that was closed meanwhile.
        text = said(error)
        if "'NoneType' object has no attribute" not in text and "closed" not in text:
            raise
        raise StoreUnavailable(f"the connection to the server was closed: {text}") from error


def _refuse(text: str) -> None:
    """Raise what will not pass by itself."""
    if any(word in text for word in _REFUSED):
        raise ConfigError(f"the server refuses us: {text}") from None
    if any(word in text for word in _UNTRUSTED):
        raise ConfigError(
            "the certificates do not fit: ssl_ca_certs in the store's URL names the file of those that vouch for the "
            f"server by the name in the URL, ssl_certfile and ssl_keyfile are ours ({text})"
        ) from None


def said(error: BaseException) -> str:
    """The server's own word, in one line. The driver names the address it tried, never a password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = (lines[0] if lines else type(error).__name__)[:300]
    return (
        f"{text}, which rediss:// takes for one with TLS, and redis:// for one without"
        if text == _MUTE
        else text
    )
