"""Events: how to record what happened to a foreign table's rows, in a table that is foreign, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from psycopg.sql import Identifier

from unstuck.stores.postgres.foreign.columns import Column
from unstuck.stores.postgres.foreign.layout import Layout

LONGEST_NAME = 63  # characters that PostgreSQL keeps


class Events(NamedTuple):
    """``why`` is the reason if no event can be written, and ``way`` the SQL that would allow it.

    ``instead`` is the reason if events are in a table of ours and not in the one that the layout names.
    """

    table: str
    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    id: str = ""
    named: str = ""
    data: str = ""
    at: str = ""
    why: str = ""
    way: str = ""
    instead: str = ""

    def placeholders(self) -> dict[str, str]:
        """The values of a statement's placeholders."""
        return {
            "events": _dotted(self.table),
            "event columns": ", ".join(self.columns),
            "event values": ", ".join(self.values),
            "event id": self.id,
            "event named": self.named,
            "event data": self.data,
            "event at": self.at,
        }


def events(layout: Layout, id_: Column, found: Mapping[str, Column], refers: Sequence[bool]) -> Events:
    """``refers`` has, for each foreign key of the job's column, whether it leads to this table."""
    nowhere = Events(layout.events)
    if not found:
        return nowhere._replace(why=f"there is no table {layout.events}")
    if layout.event_data not in found:
        return nowhere._replace(why=f"table {layout.events} has no column {layout.event_data}")
    job, data = found.get(layout.event_job), f"event.{_quoted(layout.event_data)}"
    values = {layout.event_data: f"logged.data::{found[layout.event_data].type}"}
    if layout.event_type in found:
        values[layout.event_type] = f"logged.type::{found[layout.event_type].type}"
    if job is not None and all(refers) and (job.type == id_.type or job.text):
        values[layout.event_job] = f"logged.job::{job.type}"
        id_text = f"event.{_quoted(layout.event_job)}::text"
        named = f"event.{_quoted(layout.event_job)} = ANY (%(ids)s::text[]::{job.type}[])"
    elif job is not None and job.must:
        problem = "refers to another table" if not all(refers) else f"is of type {job.type}, not {id_.type}"
        optional = (
            f"ALTER TABLE {_dotted(layout.events)} ALTER COLUMN {_quoted(layout.event_job)} DROP NOT NULL"
        )
        return nowhere._replace(
            why=f"column {layout.event_job} of table {layout.events} {problem}", way=optional
        )
    else:  # the details have the row's id
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


def beside(layout: Layout) -> Layout:
    """The layout with an events table of ours, for when the layout's own one cannot take the events."""
    schema, dot, bare = layout.events.rpartition(".")
    return replace(layout, events=f"{schema}{dot}unstuck_{bare}"[: len(schema + dot) + LONGEST_NAME])


def _made(name: str, column: Column) -> str | None:
    """A value for a required column that has no meaning for us; None if there is none."""
    if column.type == "uuid":
        return "gen_random_uuid()"
    if column.kind == "D":
        return "clock_timestamp()"
    return "gen_random_uuid()::text" if name == "id" and column.text else None


def _dotted(name: str) -> str:
    return ".".join(map(_quoted, name.split(".", 1)))


def _quoted(name: str) -> str:
    return Identifier(name).as_string(None)
