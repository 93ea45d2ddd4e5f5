"""Makes the database itself, where the edition has more than one."""

from __future__ import annotations

import logging

from neo4j.exceptions import Neo4jError

from unstuck.errors import ConfigError, StoreError
from unstuck.stores.neo4j.lines import Lines

log = logging.getLogger("unstuck.neo4j")


def absent(error: BaseException) -> bool:
    """Whether the server says that there is no such database."""
    return "DatabaseNotFound" in _code(error)


async def create(lines: Lines) -> None:
    """Create the database if it is not there. Community cannot: it says how to live with its one."""
    if lines.known:
        return
    try:
        await lines.identify()
    except ConfigError as error:
        if not absent(error):
            raise
        try:
            await lines.make_database()
        except StoreError as refused:
            if "UnsupportedAdministrationCommand" not in _code(refused):
                raise
            raise error from refused
        await lines.identify()
        log.info("made the database %s", lines.place.database)


def _code(error: BaseException) -> str:
    cause = error.__cause__
    return (cause.code or "") if isinstance(cause, Neo4jError) else ""
