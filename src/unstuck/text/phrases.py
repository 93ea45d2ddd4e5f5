"""Phrases that many messages need: lengths of time, numbers of things, suggestions, commands to type."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def lasting(seconds: float) -> str:
    """A length of time in its largest sensible unit: 4.2 s, 90 s, 12 min, 3 h, 41 d."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(0.0, seconds):.1f} s"


def ago(when: datetime | None, now: datetime) -> str:
    return "at an unknown time" if when is None else f"{lasting((now - when).total_seconds())} ago"


def counted(number: int, thing: str) -> str:
    """1 job, 2 jobs, 3 crashes."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}{'es' if thing.endswith('sh') else 's'}"


def near(name: str, known: Iterable[str]) -> str:
    """A question that names the known words most like this one, or an empty text."""
    found = get_close_matches(name, sorted(known))
    return f"did you mean {' or '.join(map(repr, found))}?" if found else ""


def holder(owner: str | None) -> str:
    return owner or "a worker without a name"


def command(verb: str, *words: str, queue: str | None = None) -> str:
    """A command to type, quoted for the shell: ids and codes may come from strangers. Ids are unique only within a queue."""
    return shlex.join(["unstuck", verb, *words, *(["--queue", queue] if queue else [])])
