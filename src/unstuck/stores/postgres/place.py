"""Place: where a PostgreSQL store is, as its URL says it, and how to connect to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import make_conninfo
from psycopg.sql import Identifier

from unstuck.errors import ConfigError

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
# A queue's table is never worth reading from end to end, whatever an empty table made the planner believe when a
# statement was prepared; and a process that freezes inside a transaction must not hold others up for long.
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
class Place:
    """``pooled`` means that a pooler in transaction mode stands between: nothing may outlive a transaction."""

    conninfo: str = field(repr=False)  # it has the password
    schema: str
    all_events: bool
    pooled: bool

    @property
    def quoted(self) -> str:
        return Identifier(self.schema).as_string(None)

    @property
    def channel(self) -> str:
        """What listeners of this schema listen to."""
        return f"unstuck.{self.schema}"


def place(parts: SplitResult, shown: str) -> Place:
    """What a ``postgresql://`` URL means; options that are none of ours are the driver's."""
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = options.pop("schema", "unstuck")
    events = options.pop("events", "exceptional")
    pooler = options.pop("pooler", "session")
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError(
            f"store option schema={schema[:60]!r} is not allowed: a lower-case letter or underscore, then up to "
            "40 lower-case letters, digits and underscores, not beginning with pg_"
        )
    if events not in ("exceptional", "all"):
        raise ConfigError(f"store option events={events!r} is not allowed: exceptional (the default) or all")
    if pooler not in ("session", "transaction"):
        raise ConfigError(
            f"store option pooler={pooler!r} is not allowed: session (the default), or transaction if a pooler "
            "such as PgBouncer in transaction mode stands between"
        )
    if parts.fragment:
        raise ConfigError(f"store {shown} has a '#': write it as %23 if it is part of the password")
    pooled = pooler == "transaction"
    url = urlunsplit(("postgresql", parts.netloc, parts.path, "", ""))
    try:
        settings = {} if pooled else {"options": _session(options.pop("options", ""))}
        conninfo = make_conninfo(url, **{**_LIBPQ, **settings, **options})
    except ProgrammingError as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigError(f"store {shown} is no address of a PostgreSQL database: {said}") from None
    return Place(conninfo, schema, events == "all", pooled)


def _session(given: str) -> str:
    ours = [f"-c {name}={value}" for name, value in _SETTINGS.items()]
    return " ".join([*ours, given]).strip()
