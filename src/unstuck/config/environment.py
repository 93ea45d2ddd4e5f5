"""Reads environment variables: texts and numbers, each number within its range."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from unstuck.config.checks import number, whole

N = TypeVar("N", int, float)
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?", re.ASCII)


def env_text(environ: Mapping[str, str], name: str) -> str | None:
    """The variable's text. A variable that is set to nothing is not set."""
    return environ.get(name, "").strip() or None


def env_int(environ: Mapping[str, str], *names: str, least: int, most: int) -> int | None:
    """The whole number in the first of these variables that is set, None if none is set.

    The others must be in range, too::

        pages = env_int(os.environ, "SHOP_PAGES", "PAGES", least=1, most=50) or 10
    """
    return _first(environ, names, lambda name, value: whole(name, value, least, most))


def env_float(
    environ: Mapping[str, str], *names: str, least: float, most: float, unit: str = "seconds"
) -> float | None:
    """The same for numbers that need not be whole; the error message for one out of range names the unit."""
    return _first(environ, names, lambda name, value: number(name, value, least, most, unit))


def as_number(text: str) -> int | float | str:
    """The number that a text stands for. Any other text is returned as it is, for the number's check to refuse."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def _first(
    environ: Mapping[str, str], names: tuple[str, ...], check: Callable[[str, int | float | str], N]
) -> N | None:
    found = [check(name, as_number(text)) for name in names if (text := env_text(environ, name))]
    return found[0] if found else None
