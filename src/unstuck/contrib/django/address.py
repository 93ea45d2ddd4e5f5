"""Between Django's DATABASES and the URL of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from psycopg.conninfo import conninfo_to_dict

from unstuck import ConfigError
from unstuck.stores.postgres.address import parse_address

_LIBPQ = {"service", "passfile", "connect_timeout", "target_session_attrs", "options", "channel_binding"}
_EMPTY = {None, ""}


def store_url(alias: str, database: Mapping[str, Any]) -> str:
    """The store that is in one of Django's databases, which its settings name."""
    if not database["ENGINE"].endswith(("postgresql", "postgis")):
        raise ConfigError(
            f"database {alias!r} is none of PostgreSQL ({database['ENGINE']}): name one that is in OPTIONS as "
            "'database', or any store as 'store'"
        )
    facts = {
        name.lower(): str(database.get(name) or "") for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")
    }
    user = quote(facts["user"], safe="") + (
        f":{quote(facts['password'], safe='')}" if facts["password"] else ""
    )
    options = {
        name: value
        for name, value in database.get("OPTIONS", {}).items()
        if name in _LIBPQ or name.startswith("ssl")
    }
    options |= {name: facts[name] for name in ("host", "port") if facts[name]}
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{user}{'@' if user else ''}/{quote(facts['name'], safe='')}{query}"


def same_database(store: str, url: str) -> bool:
    """Whether two addresses lead to one database, as far as they say it in the same words."""
    return _where(store) == _where(url)


def _where(url: str) -> tuple[str, ...]:
    parts = urlsplit(url)
    if parts.scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        return (url,)
    facts = conninfo_to_dict(parse_address(parts, "…").conninfo)
    host, port, name = (facts.get(name) for name in ("host", "port", "dbname"))
    return ("" if host in _EMPTY else str(host), str(port or 5432), str(name or facts.get("user") or ""))
