"""Brings the database up to date: constraints, indexes, and properties that nodes of other programs lack."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterable, Iterator

from neo4j.exceptions import Neo4jError

from unstuck.protocol.errors import ConfigError, SchemaError, StoreError, StoreUnavailable
from unstuck.stores.neo4j.client import MIGRATIONS, NEWEST, Neo4jClient
from unstuck.stores.neo4j.driver_errors import message_of
from unstuck.stores.neo4j.rows import EMBED, STATUSES
from unstuck.stores.shared.statements import needed_by, statements

log = logging.getLogger("unstuck.neo4j")

LONG = 600.0  # seconds to build an index on many nodes
AT_ONCE = 1000
THEIRS = 300_000  # milliseconds of a lease by another program
# A release that knew one migration wrote only the version, which is what a release must at least know: every release refuses
# a higher one. So a migration that older releases can work with does not raise it; ``applied`` counts all of them.
_VERSION = """
OPTIONAL MATCH (s:{label}Store {name: 'store'})
RETURN CASE WHEN s.birth IS NOT NULL THEN coalesce(s.applied, s.version) END
"""
_NOTE = """
MERGE (s:{label}Store {name: 'store'})
WITH s, coalesce(s.applied, s.version, 0) AS applied, coalesce(s.version, 0) AS version
SET s.applied = CASE WHEN applied > $applied THEN applied ELSE $applied END,
  s.version = CASE WHEN version > $needed THEN version ELSE $needed END,
  s.last = coalesce(s.last, 0), s.birth = coalesce(s.birth, randomUUID())
RETURN s.applied
"""
_RULES = """
SHOW INDEXES YIELD type, labelsOrTypes, properties, owningConstraint WHERE type = 'RANGE'
RETURN labelsOrTypes[0], properties, owningConstraint IS NOT NULL
"""
_RULE = re.compile(
    r"CREATE (?P<kind>CONSTRAINT|INDEX) (?P<name>\w+) IF NOT EXISTS FOR \(\w:(?P<label>\w+)\) "
    r"(?:ON|REQUIRE) \(?(?P<properties>[\w., ]+?)\)?(?: IS UNIQUE)?"
)


async def version(client: Neo4jClient) -> int:
    """How many migrations were applied."""
    [[found]] = await client.rows(_text(_VERSION, client))
    return int(found or 0)


async def migrate(client: Neo4jClient) -> None:
    """Apply what is missing. Several processes may do so at once: a statement is harmless if another applied it first."""
    found = await version(client)
    if found >= NEWEST:
        await _restore(client)
        return
    for statement in _statements(client, found):
        await _apply(client, statement)
    await client.rows(f"CALL db.awaitIndexes({LONG:.0f})", patience=LONG)
    await client.rows(_text(_NOTE, client), applied=0, needed=0)
    if filled := await fill(client, STATUSES):
        log.info("%d jobs that other programs made have been given the properties that leasing needs", filled)
    needed = max(map(needed_by, statements(*MIGRATIONS).values()))
    await client.rows(_text(_NOTE, client), applied=NEWEST, needed=needed)


async def missing(client: Neo4jClient) -> dict[str, str]:
    """The statements that create missing constraints and indexes, by their names.

    An existing one on the same properties is as good, whatever its name is.
    """
    there: dict[tuple[str, tuple[str, ...]], bool] = {}
    for label, properties, unique in await client.rows(_RULES):
        there[label, tuple(properties)] = unique or there.get((label, tuple(properties)), False)
    found = {}
    for statement in _statements(client):
        rule = _RULE.fullmatch(" ".join(statement.split()))
        assert rule is not None, statement
        properties = tuple(name.strip().partition(".")[2] for name in rule["properties"].split(","))
        unique = there.get((rule["label"], properties))
        if unique is None or (rule["kind"] == "CONSTRAINT" and not unique):
            found[rule["name"]] = statement
    return found


async def _restore(client: Neo4jClient) -> None:
    """Create again what was dropped. Jobs are safe without most of it, so a user without the privilege continues."""
    try:
        gone = await missing(client)
    except StoreUnavailable:
        raise
    except (StoreError, ConfigError) as error:
        log.debug("cannot check whether indexes are missing: %s", error)
        return
    for name, statement in gone.items():
        try:
            await _apply(client, statement)
            await client.rows(f"CALL db.awaitIndexes({LONG:.0f})", patience=LONG)
        except StoreUnavailable:
            raise
        except (StoreError, ConfigError) as error:
            log.warning("%s is missing and cannot be created: %s", name, error)
        else:
            log.warning("%s was missing and has been made again", name)


async def fill(client: Neo4jClient, states: Iterable[str]) -> int:
    """Add the properties that this store needs to jobs of other programs, in bounded steps; returns how many jobs."""
    total = 0
    chance = random.getrandbits(
        20
    )  # so that jobs that several processes number in the same millisecond differ
    facts = {"limit": AT_ONCE, "queue": client.address.queue, "task": EMBED, "lease": THEIRS}
    for status in states:
        done, behind = AT_ONCE, ""
        while done == AT_ONCE:
            page = {"status": status, "behind": behind, "first": chance + total}
            done, behind = await client.ask("fill", facts | page, safe=True)
            total += done
    return total


async def _apply(client: Neo4jClient, statement: str) -> None:
    try:
        await client.rows(statement, patience=LONG)
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, Neo4jError):
            raise
        name = " ".join(statement.split()[:3])
        if "EquivalentSchemaRule" in (cause.code or ""):  # another process was faster
            return
        if "Schema" not in (cause.code or ""):
            raise
        raise SchemaError(
            f"{name} is not possible in database {client.address.database!r}: {message_of(cause)}; remove what conflicts with it, then run "
            "unstuck init again"
        ) from error


def _statements(client: Neo4jClient, behind: int = 0) -> Iterator[str]:
    """The statements of the migrations after the first ``behind`` files."""
    for text in list(statements(*MIGRATIONS).values())[behind:]:
        yield from (_text(one, client) for one in map(str.strip, _bare(text).split(";")) if one)


def _bare(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("//"))


def _text(text: str, client: Neo4jClient) -> str:
    return text.replace("{label}", client.address.label)
