"""What can be wrong with the server, and how to fix it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from unstuck.protocol.operators import Finding
from unstuck.stores.postgres import lock_holders
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.connections import Connection
from unstuck.stores.postgres.migrate import MIGRATIONS, version
from unstuck.stores.shared.statements import indexes, statements

OLDEST = 14
_SETTINGS = """
SELECT json_object_agg(name, setting)::text, current_setting('server_version'), pg_is_in_recovery()
FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'server_version_num', 'autovacuum')
"""
_OLDEST_SNAPSHOT = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::double precision
FROM pg_stat_activity WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'
"""
_VALID = """
SELECT class.relname FROM pg_index JOIN pg_class AS class ON class.oid = indexrelid
WHERE class.relnamespace = to_regnamespace(%s) AND indisvalid
"""
LONG = 600.0  # seconds that a transaction of another session may be open before it is reported
LONG_WITH_LOCKS = 30.0  # the same for one that holds locks on our tables


async def checkup(connection: Connection, address: Address) -> list[Finding]:
    [(text, release, replica)] = await (await connection.execute(_SETTINGS)).fetchall()
    settings = json.loads(text)
    [(oldest,)] = await (await connection.execute(_OLDEST_SNAPSHOT)).fetchall()
    return [
        *await _schema(connection, address),
        *_release(settings, release, replica=replica),
        *_durability(settings),
        *_vacuum(settings, oldest),
        *await _holders(connection, address),
    ]


async def _schema(connection: Connection, address: Address) -> list[Finding]:
    found, _ = await version(connection, address)
    newest = len(statements(*MIGRATIONS))
    if found < newest:
        return [Finding("warning", f"schema version {found} of {newest}", "run: unstuck init")]
    return await _indexes(connection, address) or [Finding("ok", f"schema version {found}")]


async def _indexes(connection: Connection, address: Address) -> list[Finding]:
    """Indexes that somebody dropped, or that a failed CREATE INDEX CONCURRENTLY left unusable, and how to create them."""
    there = {name for (name,) in await (await connection.execute(_VALID, [address.quoted])).fetchall()}
    made = {
        name: " ".join(sql.split()).replace("{schema}", address.quoted)
        for name, sql in indexes(statements(*MIGRATIONS).values()).items()
    }
    return [
        Finding(
            "failure",
            f"index {name} is missing: jobs are found slowly",
            f"DROP INDEX IF EXISTS {address.quoted}.{name}; {sql.replace('INDEX', 'INDEX CONCURRENTLY', 1)}",
        )
        for name, sql in made.items()
        if name not in there
    ]


def _release(settings: Mapping[str, Any], release: str, *, replica: bool) -> list[Finding]:
    found = [Finding("ok", f"PostgreSQL {release}")]
    if int(settings["server_version_num"]) < OLDEST * 10_000:
        found = [Finding("failure", f"PostgreSQL {release} is too old", f"use {OLDEST} or newer")]
    if replica:
        found.append(
            Finding("failure", "the server is a replica: nothing can be written", "name the primary")
        )
    return found


def _durability(settings: Mapping[str, Any]) -> list[Finding]:
    found = []
    if settings["fsync"] == "off" or settings["full_page_writes"] == "off":
        off = "fsync" if settings["fsync"] == "off" else "full_page_writes"
        what = f"{off} is off: a crash of the host can destroy the database"
        found.append(Finding("failure", what, f"ALTER SYSTEM SET {off} = on; SELECT pg_reload_conf()"))
    if settings["synchronous_commit"] == "off":
        what = "synchronous_commit is off: jobs that were acknowledged can be lost in a crash"
        fix = "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()"
        found.append(Finding("warning", what, fix))
    return found or [
        Finding("ok", "what is acknowledged is on the disk (fsync and synchronous_commit are on)")
    ]


def _vacuum(settings: Mapping[str, Any], oldest: float) -> list[Finding]:
    found = []
    if settings["autovacuum"] == "off":
        fix = "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()"
        found.append(Finding("failure", "autovacuum is off: the queue's table grows without end", fix))
    if oldest > LONG:
        what = f"a transaction has been open for {oldest:.0f} s: nothing that ended since can be cleaned up"
        fix = "look for its end: SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start"
        found.append(Finding("warning", what, fix))
    return found


async def _holders(connection: Connection, address: Address) -> list[Finding]:
    """Sessions that keep rows locked: leases, heartbeats and reapers skip these rows, and nothing is logged."""
    query = lock_holders.holding_in(address.quoted, LONG_WITH_LOCKS)
    found = await (await connection.execute(query.name.encode(), query.params)).fetchall()
    return [
        Finding(
            "failure" if one.idle else "warning",
            f"{one.name} holds locks on {', '.join(sorted(one.tables))}{one.since}: nobody can take the jobs it has locked",
            one.end,
        )
        for one in lock_holders.read(found)
    ]
