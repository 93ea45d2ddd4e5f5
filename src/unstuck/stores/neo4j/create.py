"""Creates the database, where the edition can have more than one."""

from __future__ import annotations

import logging

from neo4j.exceptions import Neo4jError

from unstuck.protocol.errors import ConfigError, StoreError
from unstuck.stores.neo4j.client import Neo4jClient

log = logging.getLogger("unstuck.neo4j")


def absent(error: BaseException) -> bool:
    """Whether the server reports that the database does not exist."""
    return "DatabaseNotFound" in _code(error)


async def create(client: Neo4jClient) -> None:
    """Create the database if it does not exist. Community cannot: its error explains how to use its only database."""
    if client.known:
        return
    try:
        await client.identify()
    except ConfigError as error:
        if not absent(error):
            raise
        try:
            await client.make_database()
        except StoreError as refused:
            if "UnsupportedAdministrationCommand" not in _code(refused):
                raise
            raise error from refused
        await client.identify()
        log.info("created the database %s", client.address.database)


def _code(error: BaseException) -> str:
    cause = error.__cause__
    return (cause.code or "") if isinstance(cause, Neo4jError) else ""
