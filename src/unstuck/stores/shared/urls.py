"""What store URLs mean: their files, how long a store lasts, and how a log line shows it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from unstuck.protocol.errors import ConfigError
from unstuck.text.redact import redact

MEMORY = "/:memory:"
NEO4J_DATABASE = "embedding-jobs"  # of a Neo4j store whose URL does not name one
_NOT_IN_A_PATH = re.compile(
    r"[%?#\x00-\x1f\x7f\udc80-\udcff]"
)  # also bytes of a name that is not valid UTF-8

# As SQLAlchemy names them: where the database is does not depend on who connects to it.
_POSTGRES_DRIVER = re.compile(r"(?:postgresql|postgres)\+(?:asyncpg|psycopg|psycopg2|psycopg_async)(?=://)")


def describe(url: str) -> str:
    """The URL without its secrets; a file with its full path, and whether it is a new file.

    A user who starts in the wrong folder sees both. Call it before the store is opened.
    """
    if not _has_file(url):
        return redact(url, 300)
    found = sqlite_path(url)
    return redact(f"sqlite:///{found}", 1000) + ("" if found.exists() else ", a new file")


def absolute_url(url: str) -> str:
    """A URL that means the same store in every folder: a file with a relative path gets its full path."""
    if not isinstance(url, str) or not _has_file(url):
        return without_driver(url)
    parts = urlsplit(url)
    escaped = _NOT_IN_A_PATH.sub(lambda found: quote(found[0]), str(sqlite_path(url)))
    return f"sqlite:///{escaped}" + (f"?{parts.query}" if parts.query else "")


def without_driver(url: str) -> str:
    """The URL of a PostgreSQL database, without the driver by which another library is to connect to it."""
    return _POSTGRES_DRIVER.sub("postgresql", url, count=1) if isinstance(url, str) else url


def sqlite_path(url: str) -> Path:
    """The full path of a SQLite URL's file."""
    named = Path(unquote(urlsplit(url).path[1:]))
    try:
        found = named.absolute()
        str(found).encode()
    except FileNotFoundError:
        raise ConfigError(
            f"store file {str(named)!r} is relative to the current folder, which does not exist any more: "
            "use the full path, sqlite:////full/path/file.db"
        ) from None
    except UnicodeEncodeError:
        raise ConfigError(
            f"store file {str(found)!r} has a name that is not valid UTF-8, which SQLite cannot open: choose another folder"
        ) from None
    return found


def is_in_memory(url: str) -> bool:
    """Whether the store is deleted with the process that opened it."""
    return url.partition("?")[0].endswith(MEMORY)


def neo4j_url(
    uri: str,
    username: str | None = None,
    password: str | None = None,
    database: str | None = None,
    *,
    what: str = "uri",
) -> str:
    """The URL of a Neo4j store, from an address, a user, a password and a database that are given separately.

    A password without a user is that of the user ``neo4j``. ``what`` names the address in error messages.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme.split("+")[0] not in ("neo4j", "bolt") or not parts.netloc:
        raise ConfigError(
            f"{what} is not the address of a Neo4j server: it must be written as neo4j://host:7687 or bolt://host:7687"
        )
    if "@" in parts.netloc:
        raise ConfigError(f"{what} has a user in it: give the user name and the password separately")
    if username and not password:
        raise ConfigError(
            f"{what} comes with a user name and without its password; both are needed, or neither"
        )
    user = f"{quote(username or 'neo4j', safe='')}:{quote(password, safe='')}@" if password else ""
    name = database or parts.path.strip("/") or NEO4J_DATABASE
    options = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{user}{parts.netloc}/{quote(name)}{options}"


def _has_file(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "sqlite" and len(parts.path) > 1 and not is_in_memory(url)
