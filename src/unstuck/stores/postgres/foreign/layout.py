"""Layout: the columns and statuses of a table of jobs that another product made."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any

from unstuck.config.checks import shown
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Status
from unstuck.stores.postgres.foreign.terms import Terms

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
_STAGES = {"jobs": "clip", "asr_jobs": "asr"}  # of rows that do not have one
WORDS = ("queued", "processing", "done", "failed")
NAMES = ("id", "status", "attempts", "lease")  # columns that every table needs
OPTIONAL = (
    "owner", "beat", "max_attempts", "run_at", "stage", "expected", "started", "created", "updated",
    "fail_code", "fail_reason", "error_code", "error_message",
)  # fmt: skip
EVENT_NAMES = ("event_job", "event_type", "event_data", "event_at")


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of the columns of a table of jobs, and of its events. The defaults are the usual names.

    Columns that the table lacks are not used, but it must have id, status, attempts and lease. An empty name means
    that there is no such column. A column that you name for one purpose is not used for its usual one.

    ``queued`` to ``failed`` are the values of ``status``. ``expected`` is in milliseconds. ``usual_stage`` is the stage
    of rows that have none. A worker runs rows as jobs of the task ``task``, by default the table's name.
    """

    table: str
    _: KW_ONLY
    id: str = "id"
    status: str = "status"
    attempts: str = "attempt_count"
    lease: str = "lease_expires_at"
    owner: str = "locked_by"
    beat: str = "last_heartbeat_at"
    max_attempts: str = "max_attempts"
    run_at: str = "next_earliest_run_at"
    stage: str = "stage"
    expected: str = "expected_duration_ms"
    started: str = "processing_started_at"
    created: str = "created_at"
    updated: str = "updated_at"
    fail_code: str = "fail_code"
    fail_reason: str = "fail_reason"
    error_code: str = "error_code"
    error_message: str = "error_message"
    queued: str = "queued"
    processing: str = "processing"
    done: str = "done"
    failed: str = "failed"
    events: str = "job_events"
    event_job: str = "job_id"
    event_type: str = "type"
    event_data: str = "data"
    event_at: str = "created_at"
    usual_stage: str = ""
    task: str = ""
    terms: Terms = field(default_factory=lambda: Terms.from_environ(os.environ))

    def __post_init__(self) -> None:
        for name in (*NAMES, *OPTIONAL, *EVENT_NAMES):
            if getattr(self, name) != "" or name not in OPTIONAL:
                _identifier(f"column {name}", getattr(self, name))
        self._drop_usual_names()
        for name in ("table", "events"):
            for part in getattr(self, name).split(".", 1):
                _identifier(name, part)
        for name in WORDS:
            word = getattr(self, name)
            if not isinstance(word, str) or not 1 <= len(word) <= 63 or not word.isprintable():
                raise ConfigError(
                    f"table {self.table}: {name}={shown(word)} is not a valid status: 1 to 63 printable characters"
                )
        if len({getattr(self, name) for name in WORDS}) < len(WORDS):
            raise ConfigError(f"table {self.table}: {', '.join(WORDS)} must be four different words")
        bare = self.table.rpartition(".")[2]
        object.__setattr__(self, "usual_stage", self.usual_stage or _STAGES.get(bare, ""))
        object.__setattr__(self, "task", self.task or bare)

    def _drop_usual_names(self) -> None:
        """One column, one meaning: a default name is dropped if its column was named for something else."""
        usual = {each.name: each.default for each in fields(self)}
        named: dict[str, str] = {}
        for name in (*NAMES, *OPTIONAL):
            column = getattr(self, name)
            if column and column != usual[name] and named.setdefault(column, name) != name:
                raise ConfigError(
                    f"table {self.table}: column {column} cannot be both {named[column]} and {name}: name another"
                )
        for name in OPTIONAL:
            if named.get(getattr(self, name), name) != name:
                object.__setattr__(self, name, "")

    @property
    def words(self) -> dict[str, Status]:
        """The meaning of each value of its status column."""
        return dict(zip((getattr(self, name) for name in WORDS), Status, strict=True))

    def word(self, status: Status) -> str:
        return next(word for word, meaning in self.words.items() if meaning is status)


def layouts(tables: Sequence[str | Layout]) -> tuple[Layout, ...]:
    """The layouts of tables; one that is given by its name has the default layout."""
    return tuple(table if isinstance(table, Layout) else Layout(table) for table in tables)


def layout_with(table: str, names: Mapping[str, str]) -> Layout:
    """The layout that the options of a URL name."""
    known = [each.name for each in fields(Layout) if each.name not in ("table", "terms")]
    for name in names:
        if name not in known:
            raise ConfigError(f"table {table}: {shown(name)} is not known: use {', '.join(known)}")
    return Layout(table, **dict(names))  # type: ignore[arg-type]


def _identifier(what: str, name: Any) -> None:
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise ConfigError(
            f"{what} {shown(name)} is not allowed: a letter or underscore, then up to 62 letters, digits, '_' or '$'"
        )
