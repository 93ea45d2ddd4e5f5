"""Opens the store that a URL names. Each store has a folder of its own here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlsplit

from unstuck.protocol.errors import ConfigError
from unstuck.protocol.foreign import Joinable
from unstuck.protocol.store import Store
from unstuck.stores.postgres.foreign.layout import Layout
from unstuck.stores.shared.url_options import take_events
from unstuck.stores.shared.urls import is_in_memory, sqlite_path, without_driver
from unstuck.text.redact import redact

if TYPE_CHECKING:
    from unstuck.stores.postgres.foreign.tables import Tables


def open_store(url: str) -> Store:
    """The store behind a URL, not opened yet; its driver is imported only here.

    ``sqlite:///jobs.db`` is a file in the current folder, also if the process changes its folder later.
    ``sqlite:////var/lib/jobs.db`` is a file by its full path, ``sqlite:///:memory:`` a store that is deleted when it is
    closed. ``postgresql://user@host/database`` is a schema in a database, ``?schema=unstuck`` unless you name another;
    the driver in ``postgresql+asyncpg://`` is passed over; ``&table=jobs`` adopts a table of yours as a queue. ``redis://host:6379/0`` (``rediss://`` with TLS,
    ``unix:///path/to.sock``) is a Redis or Valkey server; its keys begin with ``?prefix=bull`` unless you name another.
    ``neo4j://user:password@host:7687/embedding-jobs`` (or ``bolt://``, each also with ``+s``) is a database on a Neo4j
    server; its jobs have the label ``?label=EmbedJob`` unless you name another. ``?events=all`` also records routine events.

    Any other scheme is the name of an entry point in the group ``unstuck.stores``, which is called with the URL.
    """
    parts, shown = _parts(url)
    match parts.scheme:
        case "sqlite":
            return _sqlite(url, parts, shown)
        case "postgresql" | "postgres":
            return _postgres(parts, shown)
        case "redis" | "rediss" | "unix":
            return _redis(parts, shown)
        case "neo4j" | "neo4j+s" | "neo4j+ssc" | "bolt" | "bolt+s" | "bolt+ssc":
            return _neo4j(parts, shown)
        case _:
            return _installed(url, parts.scheme, shown)


def existing_store(url: str) -> Store:
    """Like ``open_store``, but a file must exist: its name may be misspelt, and opening it would create a file."""
    store = open_store(url)
    parts, _ = _parts(url)
    if parts.scheme == "sqlite" and not is_in_memory(url):
        named = sqlite_path(url)
        if named.parent.is_dir() and not named.exists():
            raise ConfigError(
                f"store file {str(named)!r} does not exist: name one that does, or create it with unstuck init"
            )
    return store


def open_tables(url: str, layouts: Sequence[Layout] = ()) -> Tables:
    """Foreign tables in the database behind a URL, not opened yet.

    They are the tables that the URL names, ``?table=jobs&table=asr_jobs``, and those in ``layouts``.
    """
    parts, shown = _parts(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ConfigError(
            f"tables of yours can only be on PostgreSQL, postgresql://user@host/database, not {shown}"
        )
    try:
        from unstuck.stores.postgres.address import parse_address
        from unstuck.stores.postgres.foreign.tables import Tables
    except ImportError as error:
        raise _missing(shown, error) from None
    return Tables(parse_address(parts, shown, layouts))


def joinable(store: Store, url: str) -> Joinable:
    """The store, if jobs can be enqueued in a transaction of the caller."""
    if not isinstance(store, Joinable):
        raise ConfigError(
            f"store {redact(url, 100)!r} cannot join a transaction of yours: only one on PostgreSQL can, "
            "postgresql://user@host/database, on a connection to the same database"
        )
    return store


def _parts(url: str) -> tuple[SplitResult, str]:
    """The parts of a URL, and its text without secrets, for messages."""
    shown = repr(redact(str(url), 100))
    try:
        parts = urlsplit(without_driver(url) if isinstance(url, str) else "")
        parts.path.encode()
    except ValueError as error:
        raise ConfigError(f"store {shown} is not a URL: {error}") from None
    return parts, shown


def _sqlite(url: str, parts: SplitResult, shown: str) -> Store:
    if parts.fragment:
        raise ConfigError(
            f"store {shown} has a '#', which ends the file's name: write it as %23 if it is part of it"
        )
    if parts.netloc or len(parts.path) < 2 or "///" not in url:
        raise ConfigError(
            f"store {shown} names no file: use sqlite:///file.db or sqlite:////full/path/file.db"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    all_events = take_events(options)
    if unknown := sorted(options):
        raise ConfigError(f"store option {unknown[0]!r} is not known: sqlite takes events=all")

    from unstuck.stores.sqlite.store import MEMORY, SQLiteStore

    path = MEMORY if is_in_memory(url) else str(sqlite_path(url))
    return SQLiteStore(path, all_events=all_events)


def _postgres(parts: SplitResult, shown: str) -> Store:
    try:
        from unstuck.stores.postgres.address import parse_address
        from unstuck.stores.postgres.foreign.store import AdoptingStore
        from unstuck.stores.postgres.store import PostgresStore
    except ImportError as error:
        raise _missing(shown, error) from None
    address = parse_address(parts, shown)
    return AdoptingStore(address) if address.layouts else PostgresStore(address)


def _redis(parts: SplitResult, shown: str) -> Store:
    try:
        from unstuck.stores.redis.address import parse_address
        from unstuck.stores.redis.cluster import SpreadStore
        from unstuck.stores.redis.store import RedisStore
    except ImportError as error:
        raise _missing(shown, error, "redis") from None
    found = parse_address(parts, shown)
    return SpreadStore(found) if found.spread else RedisStore(found)


def _neo4j(parts: SplitResult, shown: str) -> Store:
    try:
        from unstuck.stores.neo4j.address import parse_address
        from unstuck.stores.neo4j.store import Neo4jStore
    except ImportError as error:
        raise _missing(shown, error, "neo4j") from None
    return Neo4jStore(parse_address(parts, shown))


def _installed(url: str, scheme: str, shown: str) -> Store:
    """A store that another package provides."""
    points = entry_points(group="unstuck.stores")
    found = tuple(points.select(name=scheme))
    kind, _, driver = scheme.partition("+")
    if not found and driver and kind in ("sqlite", "postgresql", "postgres", "redis"):
        raise ConfigError(
            f"store {shown} names a driver, which is not chosen here: drop '+{driver}', as in {kind}://"
        )
    if not found:
        others = "".join(f", {name}://…" for name in sorted(points.names))
        raise ConfigError(
            f"store {shown} is not known: use sqlite:///path/to/file.db, postgresql://user@host/database, "
            f"redis://host:6379/0 or neo4j://user@host:7687/database{others}; a package may add others by an "
            "entry point in the group 'unstuck.stores'"
        )
    if len(found) > 1:
        packages = ", ".join(sorted(point.dist.name if point.dist else point.value for point in found))
        raise ConfigError(f"store {shown} is claimed by several packages ({packages}): keep one of them")
    try:
        opened: Callable[[str], Store] = found[0].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"store {shown} is {found[0].value}, which cannot be imported: {error}") from error
    return opened(url)


def _missing(shown: str, error: ImportError, extra: str = "postgres") -> ConfigError:
    return ConfigError(
        f"store {shown} needs a driver that is not installed ({error.name}): pip install 'unstuck[{extra}]'"
    )
