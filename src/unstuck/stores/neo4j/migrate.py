"""Brings the database up to date: constraints and indexes, and what nodes of others do not say."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from neo4j.exceptions import Neo4jError

from unstuck.errors import SchemaError, StoreError
from unstuck.stores.neo4j.lines import Lines
from unstuck.stores.neo4j.plainly import said
from unstuck.stores.neo4j.rows import EMBED, STATUSES
from unstuck.stores.statements import statements

log = logging.getLogger("unstuck.neo4j")

PACKAGE = "unstuck.stores.neo4j.migrations"
LONG = 600.0  # seconds for an index on many nodes
AT_ONCE = 1000
THEIRS = 300_000  # milliseconds for which others lease a job
_VERSION = (
    "OPTIONAL MATCH (s:{label}Store {name: 'store'}) RETURN CASE WHEN s.birth IS NOT NULL THEN s.version END"
)
_NOTE = """
MERGE (s:{label}Store {name: 'store'})
SET s.version = CASE WHEN coalesce(s.version, 0) > $version THEN s.version ELSE $version END, s.last = coalesce(s.last, 0),
  s.birth = coalesce(s.birth, randomUUID())
RETURN s.version
"""


async def version(lines: Lines) -> int:
    """The schema's version; 0 if there is none."""
    [[found]] = await lines.rows(_text(_VERSION, lines))
    return int(found or 0)


async def migrate(lines: Lines) -> None:
    """Apply what is missing. Many processes may start at once: each statement is harmless if it comes second."""
    files = list(statements(PACKAGE, ".cypher").values())
    found = await version(lines)
    if found > len(files):
        raise SchemaError(
            f"the store's schema is version {found}, this release knows up to {len(files)}: upgrade unstuck"
        )
    if found == len(files):
        return
    for text in files[found:]:
        for statement in filter(None, map(str.strip, _bare(text).split(";"))):
            await _apply(lines, _text(statement, lines))
    await lines.rows(f"CALL db.awaitIndexes({LONG:.0f})", patience=LONG)
    await lines.rows(_text(_NOTE, lines), version=0)
    if filled := await fill(lines, STATUSES):
        log.info("%d jobs that others made have been given what they need to be leased here", filled)
    await lines.rows(_text(_NOTE, lines), version=len(files))


async def fill(lines: Lines, states: Iterable[str]) -> int:
    """Give jobs that others made what this store needs to know of them, in bounded steps; answers how many."""
    total = 0
    for status in states:
        facts = {
            "status": status,
            "limit": AT_ONCE,
            "queue": lines.place.queue,
            "task": EMBED,
            "lease": THEIRS,
        }
        while done := await lines.ask("fill", facts, safe=True):
            total += done
            if done < AT_ONCE:
                break
    return total


async def _apply(lines: Lines, statement: str) -> None:
    try:
        await lines.rows(statement, patience=LONG)
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, Neo4jError):
            raise
        name = " ".join(statement.split()[:3])
        if "EquivalentSchemaRule" in (cause.code or ""):  # somebody else was quicker
            return
        if "Schema" not in (cause.code or ""):
            raise
        raise SchemaError(
            f"{name} is not possible in database {lines.place.database!r}: {said(cause)}; remove what is in its way, then run "
            "unstuck init again"
        ) from error


def _bare(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("//"))


def _text(text: str, lines: Lines) -> str:
    return text.replace("{label}", lines.place.label)
