"""What can be wrong with the server, and what to do about it."""

from __future__ import annotations

from unstuck.environ import EMBED_JOB_DATABASE
from unstuck.store import Finding
from unstuck.stores.neo4j.lines import NEWEST, Lines
from unstuck.stores.neo4j.migrate import missing, version
from unstuck.stores.neo4j.rows import STATUSES
from unstuck.wording import counted

OLDEST = (5, 23)  # the first with CALL (variable) { … }
_COMPONENTS = "CALL dbms.components() YIELD name, versions, edition WHERE name = 'Neo4j Kernel' RETURN versions[0], edition"
_APOC = "SHOW PROCEDURES YIELD name WHERE name = 'apoc.periodic.iterate' RETURN count(*)"
_INDEXES = "SHOW INDEXES YIELD name, state, labelsOrTypes WHERE state <> 'ONLINE' AND labelsOrTypes[0] STARTS WITH $label RETURN collect(name)"
_STATES = """
MATCH (j:{label}) WHERE j.status IS NULL OR NOT j.status IN $known
WITH CASE WHEN j.status > '' THEN j.status END AS status, count(*) AS jobs, min(j.id) AS first ORDER BY status LIMIT 10
RETURN status, jobs, first
"""
_NAMELESS = "MATCH (j:{label}) WHERE NOT coalesce(j.id > '', false)"


async def checkup(lines: Lines) -> list[Finding]:
    return [
        *await _schema(lines),
        *_database(lines),
        *await _release(lines),
        *await _apoc(lines),
        _durability(),
        *await _states(lines),
        *await _nameless(lines),
    ]


async def has_apoc(lines: Lines) -> bool:
    [[found]] = await lines.rows(_APOC)
    return bool(found)


async def _schema(lines: Lines) -> list[Finding]:
    found = await version(lines)
    if found < NEWEST:
        return [Finding("warning", f"schema version {found} of {NEWEST}", "run: unstuck init")]
    [[broken]] = await lines.rows(_INDEXES, label=lines.place.label)
    if broken:
        fix = "wait until they are built, or drop them and run: unstuck init"
        return [Finding("failure", f"indexes that are not online: {', '.join(broken)}", fix)]
    if gone := await missing(lines):
        told = f"indexes or constraints that are missing: {', '.join(gone)}: jobs are found slowly, or twice"
        return [Finding("failure", told, "run: unstuck init")]
    return [Finding("ok", f"schema version {found} in database {lines.place.database}")]


def _database(lines: Lines) -> list[Finding]:
    name = lines.place.database
    if name == EMBED_JOB_DATABASE:
        return []
    told = f"jobs are in the database {name}, not in one called {EMBED_JOB_DATABASE}"
    return [Finding("ok", told, "let it be their own")]


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


async def _states(lines: Lines) -> list[Finding]:
    """Jobs that are counted nowhere and taken by nobody."""
    label = lines.place.label
    findings = []
    for status, jobs, first in await lines.rows(_STATES.replace("{label}", label), known=STATUSES):
        what = "no status that is a text" if status is None else f"the status {status!r}, which is none"
        which = "NOT coalesce(j.status > '', false)" if status is None else f"j.status = {status!r}"
        told = f"{counted(jobs, 'job')} with {what}: nobody will ever take such a job: {first}"
        mend = f"MATCH (j:{label}) WHERE {which} SET j.status = 'pending'"
        findings.append(
            Finding(
                "failure", told + (", …" if jobs > 1 else ""), f"{mend}, or what it is: {', '.join(STATUSES)}"
            )
        )
    return findings


async def _nameless(lines: Lines) -> list[Finding]:
    """Jobs that nothing can name, which are left alone by everybody here."""
    nameless = _NAMELESS.replace("{label}", lines.place.label)
    [[jobs]] = await lines.rows(f"{nameless} RETURN count(*)")
    if not jobs:
        return []
    told = f"{counted(jobs, 'job')} with no id that is a text: nobody will ever take or show such a job"
    return [Finding("failure", told, f"{nameless} SET j.id = randomUUID(), or DETACH DELETE j")]


def _durability() -> Finding:
    return Finding("ok", "what is acknowledged is in the transaction log on the disk")
