"""Rows of our PostgreSQL table that are not enqueued one by one: clones of a real one, and copies as a floor."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psycopg

TABLE = "unstuck.jobs"
# What our rows differ in from the one they are clones of; n counts from 1.
FINISHED = {"finished_at": "clock_timestamp() - n * interval '1 ms'"}  # within what retention keeps
PROCESSING = {
    "status": "'processing'",
    "rank": "NULL",
    "attempt_count": "1",
    "fence": "1",
    "locked_by": "'bench'",
    "started_at": "clock_timestamp()",
    "last_heartbeat_at": "clock_timestamp()",
    "lease_expires_at": "clock_timestamp() + interval '2 hours' + n * interval '1 ms'",
}


def clone(url: str, status: str, count: int, changes: dict[str, str]) -> None:
    """Insert ``count`` rows that are like one that is there with that status, but for ``changes``."""
    with psycopg.connect(url, autocommit=True) as connection:
        columns = _columns(connection)
        if unknown := changes.keys() - set(columns):
            raise RuntimeError(f"{TABLE} has no column {min(unknown)}: bench/rows.py must follow its schema")
        prefix = "finished" if changes is FINISHED else "processing"
        values = {name: name for name in columns} | changes | {"id": f"'{prefix}-' || n"}
        connection.execute(
            f"""INSERT INTO {TABLE} ({", ".join(columns)})
                SELECT {", ".join(values[name] for name in columns)}
                FROM (SELECT * FROM {TABLE} WHERE status = '{status}' LIMIT 1) AS one,
                    generate_series(1, {count}) AS n""".encode()
        )
        connection.execute("VACUUM (ANALYZE)")


@dataclass(frozen=True)
class Rows:
    """Jobs as our enqueue wrote them, in COPY's text format and as the values of psycopg's rows."""

    columns: list[str]
    lines: list[bytes]
    values: list[tuple[str | None, ...]]


def read(url: str) -> Rows:
    """All rows there are."""
    with psycopg.connect(url) as connection:
        columns = _columns(connection)
        with connection.cursor().copy(f"COPY {TABLE} ({', '.join(columns)}) TO STDOUT".encode()) as copy:
            lines = b"".join(bytes(data) for data in copy).splitlines(keepends=True)
        texts = ", ".join(f"{name}::text" for name in columns)
        values = connection.execute(f"SELECT {texts} FROM {TABLE}".encode()).fetchall()
        return Rows(columns, lines, values)


def copy_in(url: str, rows: Rows, jobs: int, *, formatted: bool) -> float:
    """Rows a second: the floor under every way to enqueue many. The rows beyond ``jobs`` warm the table up.

    ``formatted``: the lines are ready before the clock starts; else psycopg makes them from values.
    """
    into = f"COPY {TABLE} ({', '.join(rows.columns)}) FROM STDIN".encode()
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.cursor().copy(into) as copy:
            copy.write(b"".join(rows.lines[jobs:]))
        text = b"".join(rows.lines[:jobs])
        began = time.perf_counter()
        with connection.cursor().copy(into) as copy:
            if formatted:
                copy.write(text)
            else:
                for value in rows.values[:jobs]:
                    copy.write_row(value)
        return jobs / (time.perf_counter() - began)


def _columns(connection: psycopg.Connection[tuple[object, ...]]) -> list[str]:
    """Those that are written: not what the server counts or computes."""
    names = connection.execute(
        f"""SELECT attname FROM pg_attribute
            WHERE attrelid = '{TABLE}'::regclass AND attnum > 0 AND NOT attisdropped
                AND attidentity = '' AND attgenerated = ''
            ORDER BY attnum""".encode()
    )
    return [str(name) for (name,) in names]
