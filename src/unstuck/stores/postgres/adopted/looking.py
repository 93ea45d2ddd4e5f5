"""What can be read of a foreign table: numbers, rows, and what was told of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from unstuck.model import Event, Filter, Job, Status
from unstuck.store import Counts
from unstuck.stores.postgres.adopted import rows
from unstuck.stores.postgres.adopted.table import Table
from unstuck.stores.postgres.rows import Params, Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.telling import CANCELLED

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"-?[0-9]{1,18}")


def count(table: Table, totals: Mapping[str, int], paused: str | None) -> Step[Counts]:
    """Rows whose status is none of the layout's words are none of our business."""
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
    return Counts(queue=table.layout.table, **numbers, paused=paused, totals=totals)


def find(table: Table, which: Filter, limit: int, offset: int) -> Step[list[Job]]:
    condition, params = matching(table, which)
    text = table.text("find").replace("{matching}", condition)
    [(found,)] = yield Query(text, params | {"limit": limit, "offset": offset})
    return [rows.job(row, table.layout) for row in rows.read(found)]


def matching(table: Table, which: Filter) -> tuple[str, Params]:
    """A filter as a condition. What such rows do not have, no row has."""
    layout, places = table.layout, table.places()
    words = [layout.word(which.status)] if which.status else list(layout.words)
    terms = [f"{places['status']}::text = ANY (%(words)s)"]
    params: Params = {"words": words}
    if which.ids is not None:
        terms.append(f"{places['id']} = ANY (%(ids)s::text[]::{places['type id']}[])")
        params["ids"] = named(table, which.ids)
    if which.owner is not None and table.has("owner"):
        terms.append(f"{places['holder']} = %(owner)s")
        params["owner"] = which.owner
    if which.code is not None:
        terms.append(f"{places['status']} = {places['failed']} AND {places['code']} = %(code)s")
        params["code"] = which.code
    if which.dead:
        terms.append(f"{places['status']} = {places['failed']} AND {places['code']} <> '{CANCELLED.code}'")
    never = which.key is not None or which.category is not None or which.older_than is not None
    lacks = which.owner is not None and not table.has("owner")
    if never or lacks or which.task not in (None, layout.task):
        terms.append("false")
    return " AND ".join(terms), params


def named(table: Table, ids: Sequence[str]) -> list[str]:
    """Those that can be ids of this table."""
    column = table.columns["id"]
    if column.type == "uuid":
        return [id_ for id_ in ids if _UUID.fullmatch(id_)]
    if column.kind == "N":
        return [id_ for id_ in ids if _NUMBER.fullmatch(id_)]
    return list(ids)


def told(table: Table, id_: str, after: int, limit: int) -> Step[list[Event]]:
    """What was told of a row, from the beginning or behind a number."""
    if table.events.why:
        return []
    facts = {"ids": named(table, [id_]), "table": table.layout.table, "after": after, "limit": limit}
    found = yield Query(table.text("told"), facts)
    return [
        Event(cursor=str(number), at=at, type=type_, queue=table.layout.table, job=id_, data=_data(data))
        for number, at, type_, data in found
    ]


def _data(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = msgspec.json.decode(text)
    return found
