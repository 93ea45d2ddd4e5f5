"""classify(): what an exception means, and failure(): the exception as data fit to be stored.

Libraries are known by the names of their classes, so none of them has to be installed or imported.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from unstuck.protocol.errors import (
    LONGEST_DELAY,
    ConfigError,
    JobError,
    PayloadError,
    QuotaExhausted,
    RateLimited,
    StoreDamaged,
    StoreUnavailable,
    UnreadableJob,
)
from unstuck.protocol.job import Category, Failure
from unstuck.text.durations import in_seconds
from unstuck.text.redact import redact

MESSAGE_LIMIT = 8 * 1024
STACK_LIMIT = 16 * 1024
CODE_LIMIT = 100
LONGEST_RETRY_AFTER = 3600.0


class Refusal(StrEnum):
    """An error that says nothing about the job: the other side refuses us for a while, or until we pay."""

    RATE = "rate"
    QUOTA = "quota"


class Class(NamedTuple):
    """``delay`` is what the other side asked for (``Retry-After``), None without a wish.

    Without a ``code`` it is the name of the exception's class, or the usual word for it.
    """

    category: Category
    code: str = ""
    delay: float | None = None
    refusal: Refusal | None = None


class TaskErrors(NamedTuple):
    """Which errors one task has tried again, and which never, whatever they mean elsewhere."""

    on: tuple[type[Exception], ...] = ()
    never: tuple[type[Exception], ...] = ()


Rule = Callable[[Any], Class | Category | None]

_TRANSIENT, _PERMANENT, _CRITICAL = Category.TRANSIENT, Category.PERMANENT, Category.CRITICAL
_SEVERITY = (_TRANSIENT, _PERMANENT, _CRITICAL)
_registry: dict[type[BaseException], Rule | Category] = {}

# By module (first part) and class name. Looked up along the exception's ancestors, nearest first.
_KNOWN: dict[str, Category] = {
    "httpx.TransportError": _TRANSIENT,
    "httpx.InvalidURL": _PERMANENT,
    "httpx.UnsupportedProtocol": _PERMANENT,
    "requests.ConnectionError": _TRANSIENT,
    "requests.Timeout": _TRANSIENT,
    "openai.APIConnectionError": _TRANSIENT,
    "openai.APITimeoutError": _TRANSIENT,
    "redis.ConnectionError": _TRANSIENT,
    "redis.TimeoutError": _TRANSIENT,
    "redis.BusyLoadingError": _TRANSIENT,
    "redis.ReadOnlyError": _TRANSIENT,
    "redis.ClusterDownError": _TRANSIENT,
    "redis.MasterDownError": _TRANSIENT,
    "redis.TryAgainError": _TRANSIENT,
    "redis.OutOfMemoryError": _TRANSIENT,
    "redis.ResponseError": _PERMANENT,
    "psycopg.DataCorrupted": _CRITICAL,
    "psycopg.IndexCorrupted": _CRITICAL,
    "psycopg.OperationalError": _TRANSIENT,
    "psycopg.InternalError": _TRANSIENT,
    "psycopg.SerializationFailure": _TRANSIENT,
    "psycopg.DeadlockDetected": _TRANSIENT,
    "psycopg.IntegrityError": _PERMANENT,
    "psycopg.ProgrammingError": _PERMANENT,
    "psycopg.DataError": _PERMANENT,
    "neo4j.ServiceUnavailable": _TRANSIENT,
    "neo4j.SessionExpired": _TRANSIENT,
    "neo4j.TransientError": _TRANSIENT,
    "neo4j.AuthError": _PERMANENT,
    "neo4j.ConstraintError": _PERMANENT,
    "neo4j.CypherSyntaxError": _PERMANENT,
    "apsw.CorruptError": _CRITICAL,
    "apsw.NotADBError": _CRITICAL,
    "apsw.BusyError": _TRANSIENT,
    "apsw.FullError": _TRANSIENT,
    "socket.gaierror": _TRANSIENT,
    "socket.herror": _TRANSIENT,
    "ssl.SSLError": _TRANSIENT,
    "msgspec.ValidationError": _PERMANENT,
    "msgspec.DecodeError": _PERMANENT,
    "pydantic.ValidationError": _PERMANENT,
    "pydantic_core.ValidationError": _PERMANENT,
}
_REFUSALS: dict[type, Refusal] = {RateLimited: Refusal.RATE, QuotaExhausted: Refusal.QUOTA}
_DAMAGED_SQLITE = {11, 26}  # SQLITE_CORRUPT and SQLITE_NOTADB, as the standard library's sqlite3 reports them
TOO_MANY_REQUESTS = 429
_PASSING_STATUS = {408, 409, 425}
# Of something that the handler waited for. Whoever cancels the job itself never asks what that means.
_CANCELLED = asyncio.CancelledError | concurrent.futures.CancelledError
_LASTING_ERRNO = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST}


def register(kind: type[BaseException], rule: Rule | Category) -> None:
    """Say what an exception class of your own means; a rule may return None to pass."""
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise ConfigError(f"{kind!r:.60} is not an exception class: name a class, not one of its instances")
    if not (isinstance(rule, Category) or callable(rule)):
        names = ", ".join(f"Category.{each}" for each in Category)
        raise ConfigError(f"rule is {rule!r:.60}: it must be {names} or a function that returns one")
    _registry[kind] = rule


def classify(error: BaseException, of_task: TaskErrors = TaskErrors()) -> Class:  # noqa: B008 - immutable
    """What an exception means for the job that met it. An unknown one is TRANSIENT.

    ``never`` of the task goes before its ``on``, and that before what is registered. Neither changes that an error is
    CRITICAL or a cancellation.
    """
    found = _meant(error, of_task)
    if found.category is _CRITICAL or isinstance(error, _CANCELLED):
        return found
    if _named(error, of_task.never):
        return Class(_PERMANENT, found.code)
    return found._replace(category=_TRANSIENT) if _named(error, of_task.on) else found


def _meant(error: BaseException, of_task: TaskErrors) -> Class:
    try:
        found = _found(error, of_task)
    except BaseException:  # noqa: BLE001 - an exception that cannot even be asked, or a rule with a mistake in it
        found = Class(_TRANSIENT)
    return Class(found.category, _sane_code(found.code, error), sane_delay(found.delay), found.refusal)


def _named(error: BaseException, kinds: tuple[type[Exception], ...]) -> bool:
    """Whether a task names the error's class. What a handler said by a JobError, ``(Exception,)`` does not overrule."""
    if isinstance(error, JobError):
        kinds = tuple(kind for kind in kinds if issubclass(kind, JobError))
    return isinstance(error, kinds)


def _found(error: BaseException, of_task: TaskErrors) -> Class:
    for kind in type(error).__mro__:
        if (rule := _registry.get(kind)) and (found := _apply(rule, error)):
            return found
    if isinstance(error, BaseExceptionGroup) and error.exceptions:
        each = (classify(one, of_task) for one in error.exceptions)
        return max(each, key=lambda found: _SEVERITY.index(found.category))
    if isinstance(error, JobError):
        code = error.code or type(error).__name__.lower()
        delay = None if error.delay is None else in_seconds(error.delay)
        return Class(error.category, code, delay, _REFUSALS.get(type(error)))
    if isinstance(error, StoreDamaged) or getattr(error, "sqlite_errorcode", None) in _DAMAGED_SQLITE:
        return Class(_CRITICAL)
    if (status := _http_status(error)) is not None:
        return _by_status(error, status)
    for name in _names(error):
        if name in _KNOWN:
            return Class(_KNOWN[name])
    if isinstance(error, OSError) and error.errno in _LASTING_ERRNO:
        return Class(_PERMANENT)
    if isinstance(error, StoreUnavailable | OSError | TimeoutError | EOFError | _CANCELLED):
        return Class(_TRANSIENT)
    if isinstance(
        error, NotImplementedError | ImportError | SyntaxError | PayloadError | ConfigError | UnreadableJob
    ):
        return Class(_PERMANENT)
    return Class(_TRANSIENT)


def failure(
    error: BaseException,
    of_task: TaskErrors = TaskErrors(),  # noqa: B008 - immutable
    *,
    attempt: int = 0,
    worker: str = "",
) -> Failure:
    """The exception as data: classified, redacted and cut to size, even if its ``str()`` raises."""
    found = classify(error, of_task)
    return Failure(
        category=found.category,
        code=found.code,
        message=redact(_text(error), MESSAGE_LIMIT),
        stack=redact(_stack(error), STACK_LIMIT, keep_end=True),
        attempt=attempt,
        worker=worker,
        details={"exception": f"{type(error).__module__}.{type(error).__qualname__}"},
    )


def unfit(error: BaseException, code: str, *, attempt: int = 0, worker: str = "") -> Failure:
    """The failure of a job whose payload or result is not valid: permanent, whatever the error means elsewhere."""
    why = failure(error, attempt=attempt, worker=worker)
    return msgspec.structs.replace(why, category=Category.PERMANENT, code=code)


def _apply(rule: Rule | Category, error: BaseException) -> Class | None:
    found = rule if isinstance(rule, Category) else rule(error)
    return Class(found) if isinstance(found, Category) else found


def _names(error: BaseException) -> Iterator[str]:
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0].removesuffix("2")  # httpx2 speaks as httpx does
        yield f"{package}.{kind.__name__}"


def _http_status(error: BaseException) -> int | None:
    """The status of an answered request, as httpx, requests, openai and aiohttp carry it."""
    response = getattr(error, "response", None)
    for holder in (response, error):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and not isinstance(status, bool) and 100 <= status < 600:
                return status
    return None


def _by_status(error: BaseException, status: int) -> Class:
    if status == TOO_MANY_REQUESTS:
        # As OpenAI and compatible services write it.
        if getattr(error, "code", None) == "insufficient_quota":
            return Class(_TRANSIENT, "insufficient_quota", refusal=Refusal.QUOTA)
        return Class(_TRANSIENT, "http_429", _retry_after(error), Refusal.RATE)
    passing = status >= 500 or status in _PASSING_STATUS
    category = _TRANSIENT if passing else _PERMANENT
    return Class(category, f"http_{status}", _retry_after(error) if passing else None)


def _retry_after(error: BaseException) -> float | None:
    headers: Any = getattr(getattr(error, "response", error), "headers", None)
    if not hasattr(headers, "get") or not (value := headers.get("retry-after")):
        return None
    try:
        return _capped(float(value))
    except ValueError:
        return _until(str(value), headers.get("date"))


def _until(date: str, sent: str | None) -> float | None:
    # Both instants are the other side's if it sends them, so its clock need not agree with ours.
    try:
        since = parsedate_to_datetime(sent) if sent else datetime.now(UTC)
        asked = parsedate_to_datetime(date) - since
    except (ValueError, TypeError, OverflowError):
        return None
    return _capped(asked.total_seconds())


def _capped(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)


def _sane_code(code: object, error: BaseException) -> str:
    return redact(code, CODE_LIMIT) if isinstance(code, str) and code else _code(error)


def sane_delay(delay: object) -> float | None:
    """Handlers are given the benefit of the doubt; a value that is not a number of seconds means the usual backoff."""
    if isinstance(delay, bool) or not isinstance(delay, int | float) or delay != delay:  # noqa: PLR0124 - NaN
        return None
    return float(min(max(delay, 0.0), LONGEST_DELAY))  # an int may be larger than any float


def _code(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, msgspec.ValidationError):
        return "invalid_payload"
    return type(error).__name__


def _text(error: BaseException) -> str:
    try:
        message = str(error)
        if not message and isinstance(error, _CANCELLED):
            message = "something that the handler waited for was cancelled, but not its job"
        return message or type(error).__name__
    except BaseException as broken:  # noqa: BLE001 - a broken __str__ must not hide the failure
        return f"{type(error).__name__} (its message cannot be read: {type(broken).__name__})"


def _stack(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - as above: the traceback prints the message, too
        return "".join(traceback.format_tb(error.__traceback__))
