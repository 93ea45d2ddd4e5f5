"""What can be wrong with the server, and what to do about it."""

from __future__ import annotations

from unstuck.protocol.operators import Finding
from unstuck.stores.neo4j.client import NEWEST, Neo4jClient
from unstuck.stores.neo4j.migrate import missing, version
from unstuck.stores.neo4j.rows import STATUSES
from unstuck.stores.shared.urls import NEO4J_DATABASE
from unstuck.text.phrases import counted

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


async def checkup(client: Neo4jClient) -> list[Finding]:
    return [
        *await _schema(client),
        *_database(client),
        *await _release(client),
        *await _apoc(client),
        _durability(),
        *await _states(client),
        *await _nameless(client),
    ]


async def has_apoc(client: Neo4jClient) -> bool:
    [[found]] = await client.rows(_APOC)
    return bool(found)


async def _schema(client: Neo4jClient) -> list[Finding]:
    found = await version(client)
    if found < NEWEST:
        return [Finding("warning", f"schema version {found} of {NEWEST}", "run: unstuck init")]
    [[broken]] = await client.rows(_INDEXES, label=client.address.label)
    if broken:
        fix = "wait until they are built, or drop them and run: unstuck init"
        return [Finding("failure", f"indexes are not online: {', '.join(broken)}", fix)]
    if gone := await missing(client):
        what = f"indexes or constraints are missing: {', '.join(gone)}: jobs are found slowly, or twice"
        return [Finding("failure", what, "run: unstuck init")]
    return [Finding("ok", f"schema version {found} in database {client.address.database}")]


def _database(client: Neo4jClient) -> list[Finding]:
    name = client.address.database
    if name == NEO4J_DATABASE:
        return []
    what = f"jobs are in the database {name}, not in one called {NEO4J_DATABASE}"
    return [Finding("ok", what, "use a database that has only jobs")]


async def _release(client: Neo4jClient) -> list[Finding]:
    [[release, edition]] = await client.rows(_COMPONENTS)
    numbers = [int(part) for part in release.split("-")[0].split(".")[:2]]
    if tuple(numbers) < OLDEST:
        return [Finding("failure", f"Neo4j {release} is too old", "use 5.26 or newer")]
    return [Finding("ok", f"Neo4j {release}, {edition} edition")]


async def _apoc(client: Neo4jClient) -> list[Finding]:
    if await has_apoc(client):
        return [Finding("ok", "APOC is installed: cleanup runs through it")]
    return [Finding("ok", "APOC is not installed: cleanup runs in bounded batches")]


async def _states(client: Neo4jClient) -> list[Finding]:
    """Jobs that no count includes and no worker takes."""
    label = client.address.label
    findings = []
    for status, jobs, first in await client.rows(_STATES.replace("{label}", label), known=STATUSES):
        kind = (
            "a status that is missing, empty or not text"
            if status is None
            else f"the unknown status {status!r}"
        )
        which = "NOT coalesce(j.status > '', false)" if status is None else f"j.status = {status!r}"
        what = f"{counted(jobs, 'job')} with {kind}: no worker will ever take such a job: {first}"
        fix = f"MATCH (j:{label}) WHERE {which} SET j.status = 'pending'"
        findings.append(
            Finding(
                "failure",
                what + (", …" if jobs > 1 else ""),
                f"{fix}, or the right one: {', '.join(STATUSES)}",
            )
        )
    return findings


async def _nameless(client: Neo4jClient) -> list[Finding]:
    """Jobs without a usable id, which no operation touches."""
    nameless = _NAMELESS.replace("{label}", client.address.label)
    [[jobs]] = await client.rows(f"{nameless} RETURN count(*)")
    if not jobs:
        return []
    what = f"{counted(jobs, 'job')} with an id that is missing, empty or not text: such a job is never taken or shown"
    return [Finding("failure", what, f"{nameless} SET j.id = randomUUID(), or DETACH DELETE j")]


def _durability() -> Finding:
    return Finding("ok", "acknowledged jobs are in the transaction log on the disk")
