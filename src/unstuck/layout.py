"""Layout: a table of jobs that somebody else made, as it is: its columns, its words, and the terms for its rows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any

from unstuck.environ import ATTEMPTS, BASES, LIMITS, growing, number_in, retry_in
from unstuck.errors import ConfigError
from unstuck.model import Status
from unstuck.policy import LONGEST_LEASE, shown

SHORTEST_LEASE = 30.0  # a shorter one would not outlast two missed beats of 12 seconds
GROWTH = 4  # each delay is so many times the one before
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
_STAGES = {"jobs": "clip", "asr_jobs": "asr"}  # of rows that do not say theirs
WORDS = ("queued", "processing", "done", "failed")
NAMES = ("id", "status", "attempts", "lease")  # that a row cannot do without
OPTIONAL = (
    "owner", "beat", "max_attempts", "run_at", "stage", "expected", "started", "created", "updated",
    "fail_code", "fail_reason", "error_code", "error_message",
)  # fmt: skip
EVENT_NAMES = ("event_job", "event_type", "event_data", "event_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for rows that do not say it themselves.

    A lease lasts ``lease`` seconds, and at least ``factors[stage]`` times as long as the row is expected to take.
    """

    max_attempts: int = 3
    backoff: tuple[float, ...] = (30.0, 120.0, 600.0)
    lease: float = 300.0
    factors: Mapping[str, float] = field(
        default_factory=lambda: {"clip": 6.0, "asr": 12.0, "burnin": 8.0}, hash=False
    )


def terms(environ: Mapping[str, str]) -> Terms:
    """What the environment says: JOB_… before QUEUE_… before what is built in."""
    usual = Terms()
    attempts = retry_in(environ, ATTEMPTS)
    lease = number_in(
        environ, ("JOB_LEASE_SEC", "QUEUE_VISIBILITY_SEC"), SHORTEST_LEASE, LONGEST_LEASE, "seconds"
    )
    factors = {
        stage: number_in(
            environ, (f"{stage.upper()}_SLA_FACTOR",), 1.0, 1000.0, "times the expected duration"
        )
        or factor
        for stage, factor in usual.factors.items()
    }
    return Terms(
        max_attempts=attempts or usual.max_attempts,
        backoff=_delays(environ) or usual.backoff,
        lease=lease or usual.lease,
        factors=factors,
    )


def _delays(environ: Mapping[str, str]) -> tuple[float, ...]:
    """From the base on, four times longer each time up to the maximum; nothing if neither is set."""
    base, most = retry_in(environ, BASES), retry_in(environ, LIMITS)
    if base is None and most is None:
        return ()
    first = base or min(30_000, most or 30_000)
    return growing(environ, first, most or max(600_000, first), GROWTH)


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of a table of jobs, and those of its events, as such tables mostly have them.

    A column that the table lacks is done without, unless it is one of id, status, attempts and lease; an empty
    name means that there is none. A column that you name for one thing is not taken for what it usually is.

    ``queued`` to ``failed`` are the words of ``status``. ``expected`` is in milliseconds. ``usual_stage`` is that of
    rows that do not say theirs. A worker runs rows as jobs of the task ``task``, which is named like the table.
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
    terms: Terms = field(default_factory=lambda: terms(os.environ))

    def __post_init__(self) -> None:
        for name in (*NAMES, *OPTIONAL, *EVENT_NAMES):
            if getattr(self, name) != "" or name not in OPTIONAL:
                _identifier(f"column {name}", getattr(self, name))
        self._make_way()
        for name in ("table", "events"):
            for part in getattr(self, name).split(".", 1):
                _identifier(name, part)
        for name in WORDS:
            word = getattr(self, name)
            if not isinstance(word, str) or not 1 <= len(word) <= 63 or not word.isprintable():
                raise ConfigError(
                    f"table {self.table}: {name}={shown(word)} is no word of a status: 1 to 63 printable characters"
                )
        if len({getattr(self, name) for name in WORDS}) < len(WORDS):
            raise ConfigError(f"table {self.table}: {', '.join(WORDS)} must be four different words")
        bare = self.table.rpartition(".")[2]
        object.__setattr__(self, "usual_stage", self.usual_stage or _STAGES.get(bare, ""))
        object.__setattr__(self, "task", self.task or bare)

    def _make_way(self) -> None:
        """One column, one meaning: a usual name gives way to one that was said."""
        usual = {each.name: each.default for each in fields(self)}
        said: dict[str, str] = {}
        for name in (*NAMES, *OPTIONAL):
            column = getattr(self, name)
            if column and column != usual[name] and said.setdefault(column, name) != name:
                raise ConfigError(
                    f"table {self.table}: column {column} cannot be both {said[column]} and {name}: name another"
                )
        for name in OPTIONAL:
            if said.get(getattr(self, name), name) != name:
                object.__setattr__(self, name, "")

    @property
    def words(self) -> dict[str, Status]:
        """What its words mean."""
        return dict(zip((getattr(self, name) for name in WORDS), Status, strict=True))

    def word(self, status: Status) -> str:
        return next(word for word, meaning in self.words.items() if meaning is status)


def layouts(tables: Sequence[str | Layout]) -> tuple[Layout, ...]:
    """Tables by name have the usual layout."""
    return tuple(table if isinstance(table, Layout) else Layout(table) for table in tables)


def layout_with(table: str, names: Mapping[str, str]) -> Layout:
    """A layout from texts, as a URL has them."""
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
