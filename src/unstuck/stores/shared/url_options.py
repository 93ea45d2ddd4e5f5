"""Options and refusals that the URLs of several stores share."""

from __future__ import annotations

from urllib.parse import SplitResult

from unstuck.protocol.errors import ConfigError


def take_events(options: dict[str, str]) -> bool:
    """Whether routine events are recorded, too; removes ``events`` from the options."""
    events = options.pop("events", "exceptional")
    if events not in ("exceptional", "all"):
        raise ConfigError(f"store option events={events!r} is not allowed: exceptional (the default) or all")
    return events == "all"


def refuse_fragment(parts: SplitResult, shown: str) -> None:
    if parts.fragment:
        raise ConfigError(f"store {shown} has a '#': write it as %23 if it is part of the password")
