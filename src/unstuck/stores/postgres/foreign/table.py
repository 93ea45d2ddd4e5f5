"""Table: a foreign table as it was found, and the statements completed for it.

Lines of a statement that use a column which the table lacks are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from psycopg.sql import Identifier, Literal

from unstuck.config.checks import LONGEST_LEASE
from unstuck.protocol.errors import SchemaError
from unstuck.stores.postgres.foreign.columns import TIMES, Column
from unstuck.stores.postgres.foreign.events import Events, beside, events
from unstuck.stores.postgres.foreign.layout import NAMES, OPTIONAL, WORDS, Layout
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.shared.statements import statements

LONGEST_TEXT = 2000  # characters of why a row failed
UNKNOWN = "unknown"  # the code of rows that failed and do not say why
LATER = ("matching", "leftover")  # placeholders that are filled in when a statement is used
LOCKING = "FOR UPDATE OF job SKIP LOCKED"
_STATEMENTS = statements("unstuck.stores.postgres.foreign", "sql")
_PLACEHOLDER = re.compile(r"\{([a-z_ ]+)\}")
_COLUMN_PLACEHOLDERS = {
    f"{what}{name}" for name in OPTIONAL for what in ("", "column ", "type ", "none ")
} | {"holder"}
_FACTS = {
    "id": "id", "status": "status", "attempts": "attempts", "max_attempts": "max_attempts", "owner": "owner",
    "lease": "lease_until", "beat": "heartbeat_at", "run_at": "run_at", "stage": "stage", "expected": "expected",
    "started": "started_at", "created": "created_at", "updated": "updated_at", "fail_reason": "reason",
    "error_message": "message",
}  # fmt: skip


class NoTable(SchemaError):
    """The table does not exist; every other SchemaError of a table names what to change in it."""


class Table(NamedTuple):
    layout: Layout
    columns: Mapping[str, Column]  # by the layout's names; only those that exist and can be used
    events: Events
    schema: str  # our own one, quoted
    warned: set[str]  # problems that are not logged again
    odd: tuple[str, ...] = ()  # columns whose type does not fit their use

    def text(self, name: str, locking: str = LOCKING) -> str:
        """A statement, completed for this table."""
        found = self.placeholders() | {"locking": locking}
        lines = []
        for line in _STATEMENTS[name].splitlines():
            named = {placeholder for placeholder in _PLACEHOLDER.findall(line) if placeholder not in LATER}
            if named <= found.keys():
                lines.append(
                    _PLACEHOLDER.sub(lambda placeholder: found.get(placeholder[1], placeholder[0]), line)
                )
            elif unknown := named - found.keys() - _COLUMN_PLACEHOLDERS:
                raise KeyError(f"{name}.sql: {unknown}")
        return "\n".join(lines)

    def has(self, *names: str) -> bool:
        return all(name in self.columns for name in names)

    @property
    def naive(self) -> list[str]:
        """Columns whose times have no zone."""
        return [
            getattr(self.layout, name)
            for name in TIMES
            if self.has(name) and self.columns[name].type.startswith("timestamp")
            and "without time zone" in self.columns[name].type
        ]  # fmt: skip

    def placeholders(self) -> dict[str, str]:
        """The values of a statement's placeholders."""
        found = {"table": quoted(self.layout.table), "schema": self.schema}
        for word in WORDS:
            found[word] = _literal(getattr(self.layout, word))
        for name, column in self.columns.items():
            title = quoted(getattr(self.layout, name))
            found |= {
                name: f"job.{title}",
                f"type {name}": column.type,
                f"none {name}": column.none(f"job.{title}"),
            }
            if column.writable(name):
                found[f"column {name}"] = title
        found["run_at or null"] = self._time("run_at") if self.has("run_at") else "NULL::timestamptz"
        found["code"] = self._code()
        if self.has("owner"):
            found["holder"] = f"regexp_replace({self._bare('owner')}::text, '#[0-9]+$', '')"
        return found | self._expressions() | self.events.placeholders()

    def _expressions(self) -> dict[str, str]:
        lease, floor = self._time("lease"), f"make_interval(secs => {self.layout.terms.lease})"
        facts = [f"{self._fact(name)} AS {called}" for name, called in _FACTS.items() if self.has(name)]
        facts.append(f"{self._code()} AS code")
        signs = [self._time(name) for name in ("beat", "started", "updated", "created") if self.has(name)]
        newest = [f"{self._bare(name)} DESC" for name in ("created", "id") if self.has(name)]
        # A heartbeat in the future does not count.
        beat = self._time("beat")
        beat = f"CASE WHEN {beat} <= now() + interval '1 minute' THEN {beat} END"
        length = self._length("NULL", "NULL::text")
        outlives = f"greatest({lease}, CASE WHEN {beat} > {lease} THEN {beat} + {floor} END)"
        return {
            "facts": ", ".join(facts),
            # A heartbeat after the lease's end comes from a worker that sends heartbeats but does not renew leases.
            "ended": outlives if self.has("beat") else lease,
            # A lease ends at most its length after the last heartbeat: one that ends later was renewed without one.
            "last sign": f"greatest({beat}, {lease} - {length})"
            if self.has("beat")
            else f"{lease} - {length}",
            "signs": f"greatest({', '.join(signs)})" if signs else "NULL::timestamptz",
            "due": self.due(),
            "newest": ", ".join(newest),
            "length": self._length("%(seconds)s", "NULL::text"),
            "length of beat": self._length("held.seconds", "held.stage"),
        }

    def due(self) -> str:
        """The order in line: when a row may run, or else when it was created."""
        times = [self._bare(name) for name in ("run_at", "created") if self.has(name)]
        if self.has("run_at", "created") and self.columns["run_at"].type != self.columns["created"].type:
            times = [self._time(name) for name in ("run_at", "created")]
        return f"coalesce({', '.join(times)}, '-infinity')" if times else "'-infinity'::timestamptz"

    def _bare(self, name: str) -> str:
        return f"job.{quoted(getattr(self.layout, name))}"

    def _time(self, name: str) -> str:
        return f"{self._bare(name)}::timestamptz"

    def _fact(self, name: str) -> str:
        if name in TIMES:
            return self._time(name)
        if name in ("id", "status", "owner", "stage"):
            return f"{self._bare(name)}::text"
        if name in ("fail_reason", "error_message"):
            return f"left({self._bare(name)}::text, {LONGEST_TEXT})"
        return f"{self._bare(name)}::double precision"  # also for types that are not numbers

    def _code(self) -> str:
        """The code of a row that failed; its writer may fill only one of two columns."""
        names = [name for name in ("fail_code", "error_code") if self.has(name)]
        codes = [f"nullif({self._bare(name)}::text, '')" for name in names]
        return f"coalesce({', '.join([*codes, _literal(UNKNOWN)])})"

    def _length(self, seconds: str, stage: str) -> str:
        """How long a lease lasts, as an interval, which is bounded whatever numbers a row has."""
        needs = [f"{seconds}::double precision", f"{self.layout.terms.lease}"]
        if self.has("expected"):
            stages = [stage, self._fact("stage")] if self.has("stage") else [stage]
            key = f"coalesce({', '.join([*stages, _literal(self.layout.usual_stage)])})"
            factors = _literal(json.dumps(dict(self.layout.terms.factors)))
            factor = f"coalesce(({factors}::json ->> {key})::double precision, 1)"
            needs.append(f"{self._bare('expected')}::double precision / 1000 * {factor}")
        return f"make_interval(secs => least({LONGEST_LEASE}, greatest({', '.join(needs)})))"


def probe(layout: Layout, schema: str, warned: set[str]) -> Step[Table]:
    """Read the columns of a table and its events. If a required column is missing, the error names what to do."""
    _, found, _ = yield from columns_of(layout.table, layout)
    if not found:
        raise NoTable(f"there is no table {layout.table!r} in this database, or we may not see it")
    there = {
        name: found[getattr(layout, name)] for name in (*NAMES, *OPTIONAL) if getattr(layout, name) in found
    }
    if missing := [getattr(layout, name) for name in NAMES if name not in there]:
        raise SchemaError(
            f"table {layout.table!r} has no column {' and no column '.join(missing)}: "
            f"run unstuck init --table {layout.table}, or name the column that has it"
        )
    odd = [name for name, column in there.items() if not column.serves(name)]
    for name in NAMES:
        if name in odd or (name != "id" and there[name].made):
            raise SchemaError(
                f"column {getattr(layout, name)} of table {layout.table!r} is of type {there[name].type}"
                f"{' and made by the server' if there[name].made else ''}: it cannot be the {name}"
            )
    columns = {name: column for name, column in there.items() if name not in odd}
    where = yield from events_of(layout, columns["id"])
    return Table(layout, columns, where, schema, warned, tuple(odd))


def events_of(layout: Layout, id_: Column) -> Step[Events]:
    """Where the events of a table go: to the table that the layout names, else to ours beside it, if that exists."""
    _, found, refers = yield from columns_of(layout.events, layout)
    usual = events(layout, id_, found, refers)
    if not usual.why:
        return usual
    other = beside(layout)
    _, found, refers = yield from columns_of(other.events, other)
    ours = events(other, id_, found, refers)
    return usual if ours.why else ours._replace(instead=usual.why)


def columns_of(name: str, layout: Layout) -> Step[tuple[str, dict[str, Column], list[bool]]]:
    """The kind of a table, its columns, and for each foreign key of its job column whether it leads to the layout's table."""
    facts = {"table": quoted(name), "of": quoted(layout.table), "column": layout.event_job}
    [(kind, columns, refers)] = yield Query(_STATEMENTS["probe"], facts)
    found = json.loads(columns) if columns else {}
    return kind or "", {name: Column(**facts) for name, facts in found.items()}, json.loads(refers)


def needing(table: Table, *names: str) -> Table:
    """The table, if it has the columns that a worker needs."""
    if missing := [getattr(table.layout, name) for name in names if not table.has(name)]:
        raise SchemaError(
            f"table {table.layout.table!r} has no column {' and no column '.join(missing)}, which a worker needs: "
            f"run unstuck init --table {table.layout.table}"
        )
    if "owner" in names and not (table.columns["owner"].text and table.columns["owner"].writable("owner")):
        raise SchemaError(
            f"column {table.layout.owner} of table {table.layout.table!r} is of type {table.columns['owner'].type}: "
            "a worker needs a text column to write its name in"
        )
    return table


def _literal(text: str) -> str:
    """A text as a literal in a statement that also has parameters."""
    return Literal(text).as_string(None).replace("%", "%%")


def quoted(name: str) -> str:
    """An identifier, or two with a dot between them."""
    return ".".join(Identifier(part).as_string(None) for part in name.split(".", 1))
