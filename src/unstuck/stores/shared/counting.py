"""The counts of every queue, from the rows that the statements of a store return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from unstuck.protocol.operators import Counts


def counts(
    numbers: Mapping[str, Mapping[str, Any]], totals: Iterable[Any], stopped: Iterable[Any]
) -> list[Counts]:
    """``numbers`` are fields of Counts by queue, ``totals`` rows of queue, counter and value, ``stopped`` rows of queue, pause and halt."""
    added: dict[str, dict[str, int]] = {}
    for queue, name, value in totals:
        added.setdefault(queue, {})[name] = value
    why = {queue: reasons(pause, halt) for queue, pause, halt in stopped}
    found = []
    for queue in sorted(numbers.keys() | added.keys() | why.keys()):
        paused, halted = why.get(queue, (None, None))
        fields = numbers.get(queue, {})
        found.append(Counts(queue=queue, **fields, paused=paused, halted=halted, totals=added.get(queue, {})))
    return found


def reasons(pause: str | None, halt: str | None) -> tuple[str | None, str | None]:
    """Why a queue is paused and why it is halted, from the two reasons that a store keeps.

    A release that does not know halts obeys, shows and lifts only pauses, and its workers may run beside ours. So a halt
    also sets the time since when the queue is paused (``paused_at``, BullMQ's ``paused``), which stops every lease. If the
    queue was not paused, the halt also writes its reason as that of the pause: a pause with the halt's reason belongs to the
    halt. When that release resumes a queue, it leaves the halt's fields behind where they are columns or properties: a halt
    that is older than the pause (``halted_at < paused_at``) was lifted, and the statements leave it out.
    """
    return None if pause == halt else pause, halt


def with_ahead(found: Sequence[Counts], queue: str, ahead: int) -> list[Counts]:
    """The counts, with ``ahead`` set in those of one queue: how many due jobs are before the job that was asked about."""
    return [msgspec.structs.replace(of, ahead=ahead) if of.queue == queue else of for of in found]


def by_kind(rows: Iterable[tuple[Any, ...]]) -> dict[str, dict[str, float]]:
    """The numbers by queue and kind. Numbers of the same kind are added up; of the waits the longest counts."""
    found: dict[str, dict[str, float]] = {}
    for queue, kind, number in rows:
        of_queue = found.setdefault(queue, {})
        known = of_queue.get(kind, 0)
        of_queue[kind] = max(known, number) if kind == "waited" else known + int(number)
    return found
