"""Events: how to write down what happened to a foreign table's rows, in a table that is also not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from psycopg.sql import Identifier

from unstuck.layout import Layout
from unstuck.stores.postgres.adopted.columns import Column


class Events(NamedTuple):
    """``why`` says why no event can be written, if that is so."""

    table: str
    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    id: str = ""
    named: str = ""
    data: str = ""
    at: str = ""
    why: str = ""

    def places(self) -> dict[str, str]:
        """What stands in a statement for what."""
        return {
            "events": ".".join(Identifier(part).as_string(None) for part in self.table.split(".", 1)),
            "event columns": ", ".join(self.columns),
            "event values": ", ".join(self.values),
            "event id": self.id,
            "event named": self.named,
            "event data": self.data,
            "event at": self.at,
        }


def events(layout: Layout, id_: Column, found: Mapping[str, Column], refers: Sequence[bool]) -> Events:
    """``refers`` tells of each foreign key of the job's column whether it leads to this very table."""
    nowhere = Events(layout.events)
    if not found:
        return nowhere._replace(why=f"there is no table {layout.events}")
    if layout.event_data not in found:
        return nowhere._replace(why=f"table {layout.events} has no column {layout.event_data}")
    job, data = found.get(layout.event_job), f"event.{_quoted(layout.event_data)}"
    values = {layout.event_data: f"told.data::{found[layout.event_data].type}"}
    if layout.event_type in found:
        values[layout.event_type] = f"told.type::{found[layout.event_type].type}"
    if job is not None and all(refers) and (job.type == id_.type or job.text):
        values[layout.event_job] = f"told.job::{job.type}"
        id_text = f"event.{_quoted(layout.event_job)}::text"
        named = f"event.{_quoted(layout.event_job)} = ANY (%(ids)s::text[]::{job.type}[])"
    elif job is not None and job.must:
        told = "refers to another table" if not all(refers) else f"is of type {job.type}, not {id_.type}"
        return nowhere._replace(why=f"column {layout.event_job} of table {layout.events} {told}")
    else:  # the details name the row
        id_text = f"({data}::json #>> '{{details,job_id}}')"
        named = f"{id_text} = ANY (%(ids)s)"
    for name, column in found.items():
        if column.must and name not in values:
            if (made := _made(name, column)) is None:
                why = f"table {layout.events} needs a value for {name}, of type {column.type}"
                return nowhere._replace(why=why)
            values[name] = made
    at = f"({data}::json #>> '{{details,at}}')::timestamptz"
    if layout.event_at in found:
        at = f"coalesce({at}, event.{_quoted(layout.event_at)}::timestamptz)"
    columns = tuple(_quoted(name) for name in values)
    return Events(layout.events, columns, tuple(values.values()), id_text, named, data, at)


def _made(name: str, column: Column) -> str | None:
    """A value for a column that nobody gives one to."""
    if column.type == "uuid":
        return "gen_random_uuid()"
    if column.kind == "D":
        return "clock_timestamp()"
    return "gen_random_uuid()::text" if name == "id" and column.text else None


def _quoted(name: str) -> str:
    return Identifier(name).as_string(None)
