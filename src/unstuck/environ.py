"""What environment variables say: numbers within their range, how often a task is tried, where embedding jobs are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from unstuck.errors import ConfigError
from unstuck.policy import YEAR, Retry, number, whole

_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?", re.ASCII)
_LONGEST_MS = round(YEAR * 1000)
EMBED_JOB_DATABASE = "embedding-jobs"


def text_in(environ: Mapping[str, str], name: str) -> str | None:
    """What the variable says; one that is set to nothing says nothing."""
    return environ.get(name, "").strip() or None


def plain(text: str) -> int | float | str:
    """The number that a text is. Any other text comes back as it is, for the number's check to refuse."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def whole_in(environ: Mapping[str, str], names: tuple[str, ...], least: int, most: int) -> int | None:
    """The whole number of the first variable that is set; those behind it must be in range, too."""
    said = [whole(name, plain(text), least, most) for name in names if (text := text_in(environ, name))]
    return said[0] if said else None


def number_in(
    environ: Mapping[str, str], names: tuple[str, ...], least: float, most: float, unit: str
) -> float | None:
    """As ``whole_in``, for numbers that need not be whole."""
    said = [
        number(name, plain(text), least, most, unit) for name in names if (text := text_in(environ, name))
    ]
    return said[0] if said else None


def first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The name to blame for a value."""
    return next((name for name in names if text_in(environ, name)), f"the default of {names[0]}")


def neo4j_url(what: str, uri: str, username: str | None, password: str | None, database: str | None) -> str:
    """The URL of a Neo4j store whose address, user, password and database are said apart.

    A password without a user is that of ``neo4j``.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme.split("+")[0] not in ("neo4j", "bolt") or not parts.netloc:
        raise ConfigError(
            f"{what} is no address of a Neo4j server: it must be written as neo4j://host:7687 or bolt://host:7687"
        )
    if "@" in parts.netloc:
        raise ConfigError(
            f"{what} has a user in it: say the user name and the password apart from the address"
        )
    if username and not password:
        raise ConfigError(
            f"{what} comes with a user name and without its password; both are needed, or neither"
        )
    user = f"{quote(username or 'neo4j', safe='')}:{quote(password, safe='')}@" if password else ""
    name = database or parts.path.strip("/") or EMBED_JOB_DATABASE
    options = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{user}{parts.netloc}/{quote(name)}{options}"


def embed_store(environ: Mapping[str, str]) -> str | None:
    """The store that EMBED_JOB_DATABASE_URI, _USERNAME, _PASSWORD and _NAME say, if they say one."""
    uri = text_in(environ, "EMBED_JOB_DATABASE_URI")
    if uri is None:
        return None
    username, password, name = (
        text_in(environ, f"EMBED_JOB_DATABASE_{part}") for part in ("USERNAME", "PASSWORD", "NAME")
    )
    return neo4j_url("EMBED_JOB_DATABASE_URI", uri, username, password, name)


ATTEMPTS = ("JOB_MAX_ATTEMPTS", "QUEUE_MAX_ATTEMPTS")
BASES = ("JOB_BACKOFF_MS_BASE", "QUEUE_RETRY_BACKOFF_MS_BASE")
LIMITS = ("JOB_BACKOFF_MS_MAX", "QUEUE_RETRY_BACKOFF_MS_MAX")
# And the most each may say.
RETRY = dict.fromkeys(ATTEMPTS, 1000) | dict.fromkeys(BASES + LIMITS, _LONGEST_MS)


def default_retry(environ: Mapping[str, str]) -> Retry:
    """What holds for a task that does not say it itself: JOB_… before QUEUE_… before 3 attempts after 1, 2, 4 s.

    The delays double from the base up to the maximum, which is four times the base where none is set.
    """
    attempts = retry_in(environ, ATTEMPTS) or 3
    base = retry_in(environ, BASES) or 1000
    most = retry_in(environ, LIMITS) or min(4 * base, _LONGEST_MS)
    return Retry(attempts=attempts, backoff=growing(environ, base, most, 2))


def retry_in(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """What the variables of ``RETRY`` say."""
    return whole_in(environ, names, 1, RETRY[names[0]])


def growing(environ: Mapping[str, str], first: int, last: int, factor: int) -> tuple[float, ...]:
    """Delays in seconds, each so many times the one before; the first and the last are in milliseconds."""
    if last < first:
        raise ConfigError(
            f"{first_set(environ, LIMITS)} is {last}, but the first delay is {first} ms "
            f"({first_set(environ, BASES)}): the longest must be at least the first"
        )
    steps = [first]
    while steps[-1] < last:
        steps.append(min(factor * steps[-1], last))
    return tuple(step / 1000 for step in steps)
