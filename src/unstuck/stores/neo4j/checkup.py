"""What can be wrong with the server, and what to do about it."""

from __future__ import annotations

from unstuck.store import Finding
from unstuck.stores.neo4j.lines import Lines
from unstuck.stores.neo4j.migrate import PACKAGE, version
from unstuck.stores.statements import statements

OLDEST = (5, 23)  # the first with CALL (variable) { … }
_COMPONENTS = "CALL dbms.components() YIELD name, versions, edition WHERE name = 'Neo4j Kernel' RETURN versions[0], edition"
_APOC = "SHOW PROCEDURES YIELD name WHERE name = 'apoc.periodic.iterate' RETURN count(*)"
_INDEXES = "SHOW INDEXES YIELD name, state, labelsOrTypes WHERE state <> 'ONLINE' AND labelsOrTypes[0] STARTS WITH $label RETURN collect(name)"


async def checkup(lines: Lines) -> list[Finding]:
    return [*await _schema(lines), *await _release(lines), *await _apoc(lines), _durability()]


async def has_apoc(lines: Lines) -> bool:
    [[found]] = await lines.rows(_APOC)
    return bool(found)


async def _schema(lines: Lines) -> list[Finding]:
    found, newest = await version(lines), len(statements(PACKAGE, ".cypher"))
    if found < newest:
        return [Finding("warning", f"schema version {found} of {newest}", "run: unstuck init")]
    [[broken]] = await lines.rows(_INDEXES, label=lines.place.label)
    if broken:
        fix = "wait until they are built, or drop them and run: unstuck init"
        return [Finding("failure", f"indexes that are not online: {', '.join(broken)}", fix)]
    return [Finding("ok", f"schema version {found} in database {lines.place.database}")]


async def _release(lines: Lines) -> list[Finding]:
    [[release, edition]] = await lines.rows(_COMPONENTS)
    numbers = [int(part) for part in release.split("-")[0].split(".")[:2]]
    if tuple(numbers) < OLDEST:
        return [Finding("failure", f"Neo4j {release} is too old", "use 5.26 or newer")]
    return [Finding("ok", f"Neo4j {release}, {edition} edition")]


async def _apoc(lines: Lines) -> list[Finding]:
    if await has_apoc(lines):
        return [Finding("ok", "APOC is there: cleanup runs through it")]
    return [Finding("ok", "APOC is not there: cleanup runs in bounded batches")]


def _durability() -> Finding:
    return Finding("ok", "what is acknowledged is in the transaction log on the disk")
