"""Settings of a worker process: arguments before the environment before ``unstuck.toml`` before the defaults."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from unstuck import ConfigError
from unstuck.config.checks import at_a_time, queue_name, shown, whole, within_a_day
from unstuck.config.environment import as_number, env_text
from unstuck.config.policy import Policy, Rate, checked
from unstuck.config.turns import QueueOrder, parse_queues
from unstuck.operations.store_urls import store_url
from unstuck.text.phrases import near

log = logging.getLogger("unstuck.settings")

FILE = "unstuck.toml"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_APP = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
Check = Callable[
    [str, Any], Any
]  # takes a setting's name and its value; returns the value or raises ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Checked values only. ``changes`` has the file's settings of each queue, as fields of its Policy."""

    store: str | None = None
    store_by: str = ""  # what names the store: an option, a variable or the file
    app: str | None = None
    processes: int = 1
    concurrency: int = 10
    max_jobs: int | None = None
    grace: float = 30.0
    recovery: float | None = None  # the worker's or reaper's own
    log_level: str = "INFO"
    metrics_port: int | None = None
    queues: QueueOrder | None = None  # what the worker takes, and in which order
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    file: str = FILE

    def policy(self, name: str, declared: Policy) -> Policy:
        """The policy that the code declared for a queue, with the file's settings instead of its own."""
        changes = self.changes.get(name, {})
        if "retention" in changes and declared.retention_from:
            raise ConfigError(
                f"{self.file}: queue.{name}: retention comes from {declared.retention_from}: "
                "set that environment variable instead"
            )
        try:
            return replace(declared, **changes)
        except ConfigError as error:
            raise ConfigError(f"{self.file}: queue.{name}: {error}") from None

    def policies(self, declared: Mapping[str, Policy]) -> dict[str, Policy]:
        """The policies of all declared queues; raises one ConfigError with everything that is wrong with them.

        A queue that only the file knows may be misspelt, or belong to another app that shares the file: it is logged.
        """
        for name in sorted(self.changes.keys() - declared.keys()):
            meant = near(name, declared)
            log.warning(
                "%s: queue.%s: no task of the app uses this queue%s",
                self.file,
                name,
                f": {meant}" if meant else "",
            )
        wrong: list[str] = []
        found = {name: _checked(wrong, "", self.policy, name, policy) for name, policy in declared.items()}
        if wrong:
            raise ConfigError("; ".join(wrong))
        return found


class _Variable(NamedTuple):
    """A value, and the environment variable that it comes from."""

    value: Any
    name: str


def load(
    path: Path | None,
    environ: Mapping[str, str],
    declared: Callable[[str], Mapping[str, Policy]] | None = None,
    *,
    reaping: bool = False,
    **arguments: Any,
) -> Settings:
    """Read and check all settings, from wherever they come; one message names everything that is wrong.

    Without a path ``unstuck.toml`` of the current folder is read, if there is one. An argument that is None
    was not given. ``declared`` returns the queues of the app with a given name. It is called only if something
    is wrong, so that the message covers the queues, too; otherwise ``Settings.policies`` checks them.
    ``reaping`` also reads the variables with which pipelines set the interval of their reaper.
    """
    file = str(path or FILE)
    wrong: list[str] = []
    from_file, queues = _from_file(file, _read(path), wrong)
    in_file = len(wrong)
    from_environ = _from_environ(environ, _reaper_variables() if reaping else _VARIABLES, wrong)
    importable = len(wrong) == in_file  # the app reads the environment, too
    given = {
        name: _checked(wrong, "", _CHECKS[name], name, value)
        for name, value in arguments.items()
        if value is not None
    }
    values = from_file | {name: variable.value for name, variable in from_environ.items()} | given
    if values.get("store"):  # a path is relative to the folder of the start, wherever the process goes
        values["store"] = store_url(values["store"])
    by = "--store" if "store" in given else from_environ["store"].name if "store" in from_environ else file
    settings = Settings(**values, store_by=by if values.get("store") else "", changes=queues, file=file)
    if wrong and importable and declared and settings.app:
        _checked(wrong, "", lambda _, app: settings.policies(declared(app)), "", settings.app)
    if wrong:
        raise ConfigError("; ".join(wrong))
    _log_overrides(
        file, from_file, {name: variable for name, variable in from_environ.items() if name not in given}
    )
    return settings


def _read(path: Path | None) -> dict[str, Any]:
    file = path or Path(FILE)
    text = ""
    try:
        text = file.read_bytes().decode()
        return tomllib.loads(text)
    except FileNotFoundError:
        if path is None:
            return {}
        raise ConfigError(f"{file} does not exist: name a file that does") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file} is not written in UTF-8 (at line {line})") from None
    except (ValueError, RecursionError) as error:  # also numbers and tables that Python finds too large
        end = f"at line {len(text.splitlines())}, the end of the file"
        raise ConfigError(
            f"{file} is not valid TOML: {str(error).replace('at end of document', end)}"
        ) from None


def _from_file(
    file: str, content: Mapping[str, Any], wrong: list[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The settings of the process, and the fields of each queue's policy."""
    worker, queue = (_table(wrong, file, name, content.get(name, {})) for name in ("worker", "queue"))
    values = _values(wrong, file, content, _TOP, "worker", "queue")
    values |= _values(wrong, f"{file}: worker", worker, _WORKER)
    queues = {
        name: _values(wrong, f"{file}: queue.{name}", _table(wrong, file, f"queue.{name}", table), _FIELDS)
        for name, table in queue.items()
        if _checked(wrong, f"{file}: ", lambda _, name: queue_name(name), "", name)
    }
    return values, queues


def _from_environ(
    environ: Mapping[str, str], variables: Mapping[str, tuple[str, Check]], wrong: list[str]
) -> dict[str, _Variable]:
    found: dict[str, _Variable] = {}
    for variable, (name, check) in variables.items():
        if (text := env_text(environ, variable)) is None:
            continue
        value = _checked(wrong, "", check, variable, text if name in _TEXTS else as_number(text))
        first = found.setdefault(name, _Variable(value, variable))
        if None not in (value, first.value) and value != first.value:
            wrong.append(
                f"{first.name} says {first.value:g} s and {variable} says {value:g} s: "
                "set one of them, or both to the same time"
            )
    return found


def _reaper_variables() -> Mapping[str, tuple[str, Check]]:
    from unstuck.contrib import pipeline  # it loads the app, which other verbs do without

    return _VARIABLES | {
        pipeline.RECOVERY_VARIABLE: ("recovery", within_a_day),
        "EMBED_JOB_RECOVERY_INTERVAL": ("recovery", _milliseconds),  # a memory's
    }


def _checked(wrong: list[str], prefix: str, check: Check, what: str, value: Any) -> Any:
    """The checked value; a refusal is collected, so that one message can name all of them."""
    try:
        return check(what, value)
    except ConfigError as error:
        wrong.append(f"{prefix}{error}")
        return None


def _table(wrong: list[str], file: str, name: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    wrong.append(f"{file}: {name} is {shown(value)}: it must be a table, written [{name}]")
    return {}


def _values(
    wrong: list[str], prefix: str, table: Mapping[str, Any], checks: Mapping[str, Check], *others: str
) -> dict[str, Any]:
    """The checked values of a table; a key that is neither checked nor among the others is collected as unknown."""
    known = [*checks, *others]
    wrong += [
        f"{prefix}: {shown(key)} is not known: use {', '.join(known)}" for key in table if key not in known
    ]
    found: dict[str, Any] = {}
    for key, check in checks.items():
        before = len(wrong)
        if key in table:
            found[key] = _checked(wrong, f"{prefix}: ", check, key, table[key])
        if len(wrong) > before:
            del found[key]
    return found


def _log_overrides(file: str, from_file: Mapping[str, Any], from_environ: Mapping[str, _Variable]) -> None:
    overrides = [
        f"{name} is {shown(variable.value, 100)} by {variable.name}, not {shown(from_file[name], 100)}"
        for name, variable in from_environ.items()
        if name in from_file and variable.value != from_file[name]
    ]
    if overrides:
        log.info("the environment overrides %s: %s", file, "; ".join(overrides))


def _store(what: str, value: Any) -> str:
    try:
        store_url(value)
    except ConfigError as error:
        raise ConfigError(str(error) if what == "store" else f"{what}: {error}") from None
    return str(value)


def _app(what: str, value: Any) -> str:
    if not isinstance(value, str) or not _APP.fullmatch(value):
        raise ConfigError(
            f"{what} is {shown(value)}: it must be written as MODULE:APP, for example shop.tasks:app"
        )
    return value


def _level(what: str, value: Any) -> str:
    if not isinstance(value, str) or value.upper() not in LEVELS:
        raise ConfigError(f"{what} is {shown(value)}: it must be {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    return value.upper()


def _whole(least: int, most: int) -> Check:
    return lambda what, value: whole(what, value, least, most)


def _milliseconds(what: str, value: Any) -> float:
    return whole(what, value, 0, 86_400_000) / 1000


def _field(name: str, value: Any) -> Any:
    """A field of a Policy from its form in TOML: a list or a table."""
    match name, value:
        case "lapse_backoff", list():
            value = tuple(value)
        case "lapse_backoff", _:
            raise ConfigError(
                f"lapse_backoff is {shown(value)}: it must be a list of seconds, as [30, 120, 600]"
            )
        case "rate", {"count": _, **others} if not others.keys() - {"per", "bucket"}:
            value = Rate(**value)
        case "rate", _:
            raise ConfigError(
                f"rate is {shown(value)}: it must be written as rate = {{ count = 20, per = 60 }}"
            )
    return checked(name, value)


_TOP: dict[str, Check] = {"store": _store, "app": _app}
_WORKER: dict[str, Check] = {
    "processes": _whole(0, 256),
    "concurrency": at_a_time,
    "max_jobs": _whole(1, 1_000_000_000),
    "grace": within_a_day,
    "recovery": within_a_day,
    "log_level": _level,
    "metrics_port": _whole(1, 65535),
    "queues": parse_queues,
}
_FIELDS: dict[str, Check] = {
    each.name: _field for each in fields(Policy) if each.name not in ("retention_from", "recovery")
}
_CHECKS = _TOP | _WORKER
_TEXTS = ("queues", *_TOP)  # never a number, also if one is all that it says
_VARIABLES = {f"UNSTUCK_{name.upper()}": (name, check) for name, check in _CHECKS.items()}
