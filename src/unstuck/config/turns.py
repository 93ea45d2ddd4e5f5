"""In which order a worker serves its queues: fair turns, turns by weight, or one queue strictly before the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from unstuck.config.checks import queue_name, shown, whole
from unstuck.protocol.errors import ConfigError

Queues = Iterable[str] | Mapping[str, int]
Order = Literal["fair", "strict"]
FAIR: Order = "fair"
HEAVIEST = 1000
_FORMS = "a,b for strict order or a=5,b=1 for weights"


class QueueOrder(NamedTuple):
    """Queues as a worker takes them: their names, or names with weights."""

    queues: list[str] | dict[str, int]
    order: Order

    def __repr__(self) -> str:
        """As a person writes it."""
        pairs = (
            self.queues.items() if isinstance(self.queues, dict) else [(name, None) for name in self.queues]
        )
        return repr(",".join(name if weight is None else f"{name}={weight}" for name, weight in pairs))


def weights(queues: Queues | None, order: str = "fair") -> dict[str, int]:
    """The weights of a worker's queues, checked together with their order; of most workers there are none."""
    if order not in ("fair", "strict"):
        raise ConfigError(f"order is {shown(order)}: it must be 'fair' or 'strict'")
    if not isinstance(queues, Mapping):
        return {}
    if order == "strict":
        raise ConfigError(
            "order='strict' and weights are two orders: give the queues as a list, or leave the order out"
        )
    return {name: _weight(name, weight) for name, weight in queues.items()}


def parse_queues(what: str, text: Any) -> QueueOrder:
    """What ``--queues`` says: names in strict order, or every name with its weight."""
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{what} is {shown(text)}: it must be a text, {_FORMS}")
    pairs = [[part.strip() for part in each.split("=", 1)] for each in text.split(",")]
    names = [queue_name(name, f"{what}: queue name") for name, *_ in pairs]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ConfigError(f"{what} names {shown(name)} twice: name each queue once")
    if not any(rest for _, *rest in pairs):
        return QueueOrder(names, "strict")
    if not all(rest for _, *rest in pairs):
        raise ConfigError(f"{what} is {shown(text)}: give every queue a weight or none, {_FORMS}")
    given = {name: _weight(name, _number(rest), what) for name, rest in pairs}
    return QueueOrder(given, "fair")


def _number(text: str) -> int | str:
    """The number, as digits that everybody reads alike; anything else is left for the check to refuse."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else text


def _weight(name: str, weight: Any, what: str = "queues") -> int:
    return whole(f"{what}: the weight of {shown(name)}", weight, 1, HEAVIEST)
