"""Address: where a PostgreSQL store is, parsed from its URL, and how to connect to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import make_conninfo
from psycopg.sql import Identifier

from unstuck.protocol.errors import ConfigError
from unstuck.stores.postgres.foreign.layout import Layout, layout_with
from unstuck.stores.shared.url_options import refuse_fragment, take_events

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
# A queue's table must never be read from end to end, also if it was empty when the planner prepared a statement. And a
# process that freezes inside a transaction must not block others for long.
_SETTINGS = {
    "TimeZone": "UTC",
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "client_connection_check_interval": "5s",
    "idle_in_transaction_session_timeout": "15s",
}
_LIBPQ = {
    "connect_timeout": "10",
    "tcp_user_timeout": "20000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "application_name": "unstuck",
}


@dataclass(frozen=True)
class Address:
    """``pooled`` means that connections go through a pooler in transaction mode: no session state may outlive a transaction."""

    conninfo: str = field(repr=False)  # contains the password
    schema: str
    all_events: bool
    pooled: bool
    layouts: tuple[Layout, ...] = ()  # of foreign tables
    warned: set[str] = field(
        default_factory=set, compare=False, repr=False
    )  # problems that this process has logged

    @property
    def quoted(self) -> str:
        return Identifier(self.schema).as_string(None)

    @property
    def channel(self) -> str:
        """The channel of this schema's notifications."""
        return f"unstuck.{self.schema}"


def parse_address(parts: SplitResult, shown: str, layouts: Sequence[Layout] = ()) -> Address:
    """Parse a ``postgresql://`` URL; options that are not ours are passed to the driver."""
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    options.pop("table", None)
    layouts = (*_layouts(pairs, options), *layouts)
    schema = options.pop("schema", "unstuck")
    all_events = take_events(options)
    pooler = options.pop("pooler", "session")
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError(
            f"store option schema={schema[:60]!r} is not allowed: a lower-case letter or underscore, then up to "
            "40 lower-case letters, digits and underscores, not beginning with pg_"
        )
    if pooler not in ("session", "transaction"):
        raise ConfigError(
            f"store option pooler={pooler!r} is not allowed: session (the default), or transaction if connections "
            "go through a pooler in transaction mode, such as PgBouncer"
        )
    refuse_fragment(parts, shown)
    pooled = pooler == "transaction"
    url = urlunsplit(("postgresql", parts.netloc, parts.path, "", ""))
    try:
        session = dict(_SETTINGS)
        if layouts:  # times without a zone were written in that of the server
            del session["TimeZone"]
        settings = {} if pooled else {"options": _session(session, options.pop("options", ""))}
        conninfo = make_conninfo(url, **{**_LIBPQ, **settings, **options})
    except ProgrammingError as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"store {shown} is not a valid address of a PostgreSQL database: {reason}"
        ) from None
    return Address(conninfo, schema, all_events, pooled, tuple(layouts))


def _layouts(pairs: Sequence[tuple[str, str]], options: dict[str, str]) -> list[Layout]:
    """The layouts in ``table=jobs&clips.attempts=tries``, here of two tables; removes them from the options."""
    found: dict[str, dict[str, str]] = {value: {} for name, value in pairs if name == "table"}
    for name in [name for name in options if "." in name]:
        table, _, called = name.rpartition(".")
        found.setdefault(table, {})[called] = options.pop(name)
    return [layout_with(table, names) for table, names in found.items()]


def _session(settings: Mapping[str, str], given: str) -> str:
    ours = [f"-c {name}={value}" for name, value in settings.items()]
    return " ".join([*ours, given]).strip()
