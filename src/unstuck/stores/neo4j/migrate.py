"""Brings the database up to date: constraints and indexes, and what nodes of others do not say."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterable, Iterator

from neo4j.exceptions import Neo4jError

from unstuck.errors import ConfigError, SchemaError, StoreError, StoreUnavailable
from unstuck.stores.neo4j.lines import MIGRATIONS, NEWEST, Lines
from unstuck.stores.neo4j.plainly import said
from unstuck.stores.neo4j.rows import EMBED, STATUSES
from unstuck.stores.statements import statements

log = logging.getLogger("unstuck.neo4j")

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
_RULES = """
SHOW INDEXES YIELD type, labelsOrTypes, properties, owningConstraint WHERE type = 'RANGE'
RETURN labelsOrTypes[0], properties, owningConstraint IS NOT NULL
"""
_RULE = re.compile(
    r"CREATE (?P<kind>CONSTRAINT|INDEX) (?P<name>\w+) IF NOT EXISTS FOR \(\w:(?P<label>\w+)\) "
    r"(?:ON|REQUIRE) \(?(?P<properties>[\w., ]+?)\)?(?: IS UNIQUE)?"
)


async def version(lines: Lines) -> int:
    """The schema's version; 0 if there is none."""
    [[found]] = await lines.rows(_text(_VERSION, lines))
    return int(found or 0)


async def migrate(lines: Lines) -> None:
    """Apply what is missing. Many processes may start at once: each statement is harmless if it comes second."""
    found = await version(lines)
    if found >= NEWEST:
        await _restore(lines)
        return
    for statement in _statements(lines, found):
        await _apply(lines, statement)
    await lines.rows(f"CALL db.awaitIndexes({LONG:.0f})", patience=LONG)
    await lines.rows(_text(_NOTE, lines), version=0)
    if filled := await fill(lines, STATUSES):
        log.info("%d jobs that others made have been given what they need to be leased here", filled)
    await lines.rows(_text(_NOTE, lines), version=NEWEST)


async def missing(lines: Lines) -> dict[str, str]:
    """The statements that make constraints and indexes which are not there any more, by their names.

    One that somebody else made of the same properties is as good, whatever it is called.
    """
    there: dict[tuple[str, tuple[str, ...]], bool] = {}
    for label, properties, unique in await lines.rows(_RULES):
        there[label, tuple(properties)] = unique or there.get((label, tuple(properties)), False)
    found = {}
    for statement in _statements(lines):
        rule = _RULE.fullmatch(" ".join(statement.split()))
        assert rule is not None, statement
        properties = tuple(name.strip().partition(".")[2] for name in rule["properties"].split(","))
        unique = there.get((rule["label"], properties))
        if unique is None or (rule["kind"] == "CONSTRAINT" and not unique):
            found[rule["name"]] = statement
    return found


async def _restore(lines: Lines) -> None:
    """Make again what somebody dropped. Jobs are safe without most of it, so who may not make it, or look, goes on."""
    try:
        gone = await missing(lines)
    except StoreUnavailable:
        raise
    except (StoreError, ConfigError) as error:
        log.debug("whether indexes are missing cannot be seen: %s", error)
        return
    for name, statement in gone.items():
        try:
            await _apply(lines, statement)
            await lines.rows(f"CALL db.awaitIndexes({LONG:.0f})", patience=LONG)
        except StoreUnavailable:
            raise
        except (StoreError, ConfigError) as error:
            log.warning("%s is missing and cannot be made: %s", name, error)
        else:
            log.warning("%s was missing and has been made again", name)


async def fill(lines: Lines, states: Iterable[str]) -> int:
    """Give jobs that others made what this store needs to know of them, in bounded steps; answers how many."""
    total = 0
    chance = random.getrandbits(20)  # what was made in one millisecond by many has different numbers, too
    facts = {"limit": AT_ONCE, "queue": lines.place.queue, "task": EMBED, "lease": THEIRS}
    for status in states:
        done, behind = AT_ONCE, ""
        while done == AT_ONCE:
            page = {"status": status, "behind": behind, "first": chance + total}
            done, behind = await lines.ask("fill", facts | page, safe=True)
            total += done
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


def _statements(lines: Lines, behind: int = 0) -> Iterator[str]:
    """Those of the files behind so many."""
    for text in list(statements(MIGRATIONS, ".cypher").values())[behind:]:
        yield from (_text(one, lines) for one in map(str.strip, _bare(text).split(";")) if one)


def _bare(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("//"))


def _text(text: str, lines: Lines) -> str:
    return text.replace("{label}", lines.place.label)
