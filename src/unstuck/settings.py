"""Settings of a worker process: arguments before the environment before ``unstuck.toml`` before the defaults."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from unstuck.environ import RETRY, default_retry, embed_store, plain, text_in, whole_in
from unstuck.errors import ConfigError
from unstuck.policy import Policy, Rate, at_a_time, checked, queue_name, shown, whole, within_a_day
from unstuck.stores import open_store
from unstuck.wording import near

log = logging.getLogger("unstuck.settings")

FILE = "unstuck.toml"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
MILLISECONDS = "EMBED_JOB_RECOVERY_INTERVAL"
EMBED_STORE = "EMBED_JOB_DATABASE_URI"
_APP = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
Check = Callable[[str, Any], Any]  # takes what it is called and what was said; gives the value or refuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Checked values only. ``queues`` has what the file says of each queue, as fields of its Policy."""

    store: str | None = None
    app: str | None = None
    processes: int = 1
    concurrency: int = 10
    grace: float = 30.0
    recovery: float = 60.0
    log_level: str = "INFO"
    metrics_port: int | None = None
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    file: str = FILE

    def policy(self, name: str, declared: Policy) -> Policy:
        """What the code declared for a queue, with what the file says instead."""
        said = self.queues.get(name, {})
        if "retention" in said and declared.retention_from:
            raise ConfigError(
                f"{self.file}: queue.{name}: retention is said by {declared.retention_from}: "
                "set that environment variable instead"
            )
        try:
            return replace(declared, **said)
        except ConfigError as error:
            raise ConfigError(f"{self.file}: queue.{name}: {error}") from None

    def policies(self, declared: Mapping[str, Policy]) -> dict[str, Policy]:
        """All of them, or all that is wrong with them.

        A queue that only the file knows may be misspelt, or another app's that shares the file: it is told.
        """
        for name in sorted(self.queues.keys() - declared.keys()):
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


class _Said(NamedTuple):
    """A value, and the variable that says it."""

    value: Any
    variable: str


def load(
    path: Path | None,
    environ: Mapping[str, str],
    declared: Callable[[str], Mapping[str, Policy]] | None = None,
    **arguments: Any,
) -> Settings:
    """Read and check all that was said, wherever; everything that is wrong is told in one message.

    Without a path ``unstuck.toml`` of the current folder is read, if there is one. An argument that is None
    was not given. ``declared`` gives the queues of the app that a name stands for: it is asked only if something
    is wrong, so that what is wrong with queues is told with it. Otherwise that is left to ``Settings.policies``.
    """
    file = str(path or FILE)
    wrong: list[str] = []
    from_file, queues = _from_file(file, _read(path), wrong)
    in_file = len(wrong)
    from_environ = _from_environ(environ, wrong)
    importable = len(wrong) == in_file  # tasks read the environment, too
    given = {
        name: _checked(wrong, "", _CHECKS[name], name, value)
        for name, value in arguments.items()
        if value is not None
    }
    values = from_file | {name: said.value for name, said in from_environ.items()} | given
    settings = Settings(**values, queues=queues, file=file)
    if wrong and importable and declared and settings.app:
        _checked(wrong, "", lambda _, app: settings.policies(declared(app)), "", settings.app)
    if wrong:
        raise ConfigError("; ".join(wrong))
    _tell_overrides(file, from_file, {name: said for name, said in from_environ.items() if name not in given})
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
        raise ConfigError(f"{file} is not there: name a file that exists") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file} is not written in UTF-8 (at line {line})") from None
    except (ValueError, RecursionError) as error:  # also numbers and tables that Python finds too large
        end = f"at line {len(text.splitlines())}, the end of the file"
        raise ConfigError(f"{file} is no TOML: {str(error).replace('at end of document', end)}") from None


def _from_file(
    file: str, said: Mapping[str, Any], wrong: list[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The settings of the process, and the fields of each queue's policy."""
    worker, queue = (_table(wrong, file, name, said.get(name, {})) for name in ("worker", "queue"))
    values = _values(wrong, file, said, _TOP, "worker", "queue")
    values |= _values(wrong, f"{file}: worker", worker, _WORKER)
    queues = {
        name: _values(wrong, f"{file}: queue.{name}", _table(wrong, file, f"queue.{name}", table), _FIELDS)
        for name, table in queue.items()
        if _checked(wrong, f"{file}: ", lambda _, name: queue_name(name), "", name)
    }
    return values, queues


def _from_environ(environ: Mapping[str, str], wrong: list[str]) -> dict[str, _Said]:
    said: dict[str, _Said] = {}
    for variable, name in _VARIABLES.items():
        if (text := text_in(environ, variable)) is None:
            continue
        check = _milliseconds if variable == MILLISECONDS else _CHECKS[name]
        value = _checked(wrong, "", check, variable, plain(text))
        first = said.setdefault(name, _Said(value, variable))
        if None not in (value, first.value) and value != first.value:
            wrong.append(
                f"{first.variable} says {first.value:g} s and {variable} says {value:g} s: "
                "set one of them, or both to the same time"
            )
    before = len(wrong)
    for variable, most in RETRY.items():
        _checked(wrong, "", lambda name, most: whole_in(environ, (name,), 1, most), variable, most)
    if len(wrong) == before:
        _checked(wrong, "", lambda _, given: default_retry(given), "", environ)
    if "store" not in said and (url := _checked(wrong, "", lambda _, given: embed_store(given), "", environ)):
        said["store"] = _Said(_checked(wrong, "", _store, EMBED_STORE, url), EMBED_STORE)
    return said


def _checked(wrong: list[str], place: str, check: Check, what: str, value: Any) -> Any:
    """What the check makes of the value; a refusal is noted, so that all of them can be told together."""
    try:
        return check(what, value)
    except ConfigError as error:
        wrong.append(f"{place}{error}")
        return None


def _table(wrong: list[str], file: str, name: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    wrong.append(f"{file}: {name} is {shown(value)}: it must be a table, written [{name}]")
    return {}


def _values(
    wrong: list[str], place: str, table: Mapping[str, Any], checks: Mapping[str, Check], *others: str
) -> dict[str, Any]:
    """What the table says and may say; keys that are neither checked nor among the others are noted as unknown."""
    known = [*checks, *others]
    wrong += [
        f"{place}: {shown(key)} is not known: use {', '.join(known)}" for key in table if key not in known
    ]
    found: dict[str, Any] = {}
    for key, check in checks.items():
        before = len(wrong)
        if key in table:
            found[key] = _checked(wrong, f"{place}: ", check, key, table[key])
        if len(wrong) > before:
            del found[key]
    return found


def _tell_overrides(file: str, from_file: Mapping[str, Any], from_environ: Mapping[str, _Said]) -> None:
    told = [
        f"{name} is {shown(said.value, 100)} by {said.variable}, not {shown(from_file[name], 100)}"
        for name, said in from_environ.items()
        if name in from_file and said.value != from_file[name]
    ]
    if told:
        log.info("the environment overrides %s: %s", file, "; ".join(told))


def _store(what: str, value: Any) -> str:
    try:
        open_store(value)
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
    """A field of a Policy from what TOML can say: a list or a table."""
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
    "grace": within_a_day,
    "recovery": within_a_day,
    "log_level": _level,
    "metrics_port": _whole(1, 65535),
}
_FIELDS: dict[str, Check] = {each.name: _field for each in fields(Policy) if each.name != "retention_from"}
_CHECKS = _TOP | _WORKER
_VARIABLES = {f"UNSTUCK_{name.upper()}": name for name in _CHECKS if name != "recovery"} | {
    "REAPER_INTERVAL_SEC": "recovery",
    MILLISECONDS: "recovery",
}
