"""Reads of a foreign table: counts, rows and their events."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from unstuck.protocol.job import Job, Status
from unstuck.protocol.operators import Counts, Event, Filter
from unstuck.stores.postgres.foreign import rows
from unstuck.stores.postgres.foreign.table import Table
from unstuck.stores.postgres.rows import Params, Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.shared.events import CANCELLED

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"-?[0-9]{1,18}")


def count(table: Table, known: Counts) -> Step[Counts]:
    """The counts of rows; totals, pause and halt are taken from ``known``. Rows with a status that is not in the layout are not counted."""
    numbers: dict[str, Any] = {}
    for word, total, delayed, expired, cancelled, waited in (yield Query(table.text("count"), {})):
        match table.layout.words.get(word):
            case None:
                pass
            case Status.PENDING:
                numbers |= {
                    "pending": total,
                    "delayed": delayed,
                    "waited": None if waited is None else max(0.0, waited),
                }
            case Status.PROCESSING:
                numbers |= {"processing": total, "expired": expired}
            case Status.FAILED:
                numbers |= {"failed": total, "cancelled": cancelled}
            case status:
                numbers[status] = total
    return Counts(
        queue=table.layout.table,
        **numbers,
        paused=known.paused,
        halted=known.halted,
        totals=known.totals,
    )


def find(table: Table, which: Filter, limit: int, offset: int) -> Step[list[Job]]:
    condition, params = matching(table, which)
    text = table.text("find").replace("{matching}", condition)
    [(found,)] = yield Query(text, params | {"limit": limit, "offset": offset})
    return [rows.job(row, table.layout) for row in rows.read(found)]


def matching(table: Table, which: Filter) -> tuple[str, Params]:
    """A filter as a condition. A filter by something that rows of this table never have matches none."""
    layout, placeholders = table.layout, table.placeholders()
    words = [layout.word(which.status)] if which.status else list(layout.words)
    terms = [f"{placeholders['status']}::text = ANY (%(words)s)"]
    params: Params = {"words": words}
    if which.ids is not None:
        terms.append(f"{placeholders['id']} = ANY (%(ids)s::text[]::{placeholders['type id']}[])")
        params["ids"] = named(table, which.ids)
    if which.owner is not None and table.has("owner"):
        terms.append(f"{placeholders['holder']} = %(owner)s")
        params["owner"] = which.owner
    if which.code is not None:
        terms.append(
            f"{placeholders['status']} = {placeholders['failed']} AND {placeholders['code']} = %(code)s"
        )
        params["code"] = which.code
    if which.dead:
        terms.append(
            f"{placeholders['status']} = {placeholders['failed']} AND {placeholders['code']} <> '{CANCELLED.code}'"
        )
    never = which.key is not None or which.category is not None or which.older_than is not None
    lacks = which.owner is not None and not table.has("owner")
    if never or lacks or which.task not in (None, layout.task):
        terms.append("false")
    return " AND ".join(terms), params


def named(table: Table, ids: Sequence[str]) -> list[str]:
    """The ids whose form fits this table's id column."""
    column = table.columns["id"]
    if column.type == "uuid":
        return [id_ for id_ in ids if _UUID.fullmatch(id_)]
    if column.kind == "N":
        return [id_ for id_ in ids if _NUMBER.fullmatch(id_)]
    return list(ids)


def row_events(table: Table, id_: str, after: int, limit: int) -> Step[list[Event]]:
    """The events of a row, after the event number ``after``."""
    if table.events.why:
        return []
    facts = {"ids": named(table, [id_]), "table": table.layout.table, "after": after, "limit": limit}
    found = yield Query(table.text("job_events"), facts)
    return [
        Event(cursor=str(number), at=at, type=type_, queue=table.layout.table, job=id_, data=_data(data))
        for number, at, type_, data in found
    ]


def _data(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = msgspec.json.decode(text)
    return found
