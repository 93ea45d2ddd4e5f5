"""Every queue in numbers, put together from what the statements of a store answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unstuck.store import Counts


def counts(
    numbers: Mapping[str, Mapping[str, Any]], totals: Iterable[Any], paused: Iterable[Any]
) -> list[Counts]:
    """From the fields of Counts by queue, rows of queue, counter and value, and rows of queue and reason."""
    added: dict[str, dict[str, int]] = {}
    for queue, name, value in totals:
        added.setdefault(queue, {})[name] = value
    why: dict[str, str] = dict(paused)
    return [
        Counts(queue=queue, **numbers.get(queue, {}), paused=why.get(queue), totals=added.get(queue, {}))
        for queue in sorted(numbers.keys() | added.keys() | why.keys())
    ]


def by_kind(rows: Iterable[tuple[Any, ...]]) -> dict[str, dict[str, float]]:
    """From rows of queue, kind and number. What comes twice is added up; of the waits the longer one holds."""
    found: dict[str, dict[str, float]] = {}
    for queue, kind, number in rows:
        of_queue = found.setdefault(queue, {})
        known = of_queue.get(kind, 0)
        of_queue[kind] = max(known, number) if kind == "waited" else known + int(number)
    return found
