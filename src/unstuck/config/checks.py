"""Checks of numbers and names: each returns the value or raises ConfigError with the allowed range."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unicodedata import category

from unstuck.protocol.errors import ConfigError
from unstuck.text.redact import redact

YEAR = 366 * 86400.0
LONGEST_LEASE = 7 * 86400.0
_UNITS = {"seconds": timedelta(seconds=1), "days": timedelta(days=1)}


def queue_name(name: Any, what: str = "queue name") -> str:
    """The name of a queue, if every store can have it."""
    if not isinstance(name, str) or not 1 <= len(name) <= 100 or not _lettered(name):
        raise ConfigError(
            f"{what} {shown(name)} is not allowed: 1 to 100 letters, digits, '_', '.' or '-', "
            "beginning with a letter or digit"
        )
    return name


def _lettered(name: str) -> bool:
    """Whether it has only letters and digits of any script with their marks, as BullMQ's queues have, and ``_.-``."""
    kinds = [category(letter)[0] for letter in name]
    return kinds[0] in "LN" and all(
        kind in "LNM" or letter in "_.-" for kind, letter in zip(kinds, name, strict=True)
    )


def task_name(name: Any) -> str:
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= 128
        or not name.isprintable()
        or name != name.strip()
    ):
        raise ConfigError(
            f"task name {shown(name)} is not allowed: a text of 1 to 128 printable characters, without a space at "
            "its beginning or end"
        )
    return name


def lane_name(lane: Any) -> str:
    if not isinstance(lane, str) or not 1 <= len(lane) <= 100 or not lane.isprintable():
        raise ConfigError(f"lane {shown(lane)} is not allowed: a text of 1 to 100 printable characters")
    return lane


def job_key(key: Any) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= 255 or not key.isprintable():
        raise ConfigError(f"key {shown(key)} is not allowed: a text of 1 to 255 printable characters")
    return key


def whole(what: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} is {shown(value)}: it must be a whole number from {least} to {most}")
    return value


def number(what: str, value: Any, least: float, most: float, unit: str = "seconds") -> float:
    """The number, or a timedelta as a number of its unit."""
    if isinstance(value, timedelta) and unit in _UNITS:
        value /= _UNITS[unit]
    # Written so that NaN is refused, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(
            f"{what} is {shown(value)}: it must be a number from {least:.12g} to {most:.12g} ({unit})"
        )
    return float(value)


def within_a_day(what: str, value: Any) -> float:
    """The seconds for which a worker or a reaper waits."""
    return number(what, value, 0.0, 86400.0)


def at_a_time(what: str, value: Any) -> int:
    """How many jobs one process runs."""
    return whole(what, value, 1, 10_000)


def shown(value: Any, limit: int = 60) -> str:
    """A value as an error message repeats it: short, on one line and without secrets."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = "a number of thousands of digits"
    return redact(text, limit)  # before it is cut: what is left of an address may no longer look like one
