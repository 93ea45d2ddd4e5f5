# mypy: ignore-errors
"""The event loop of a peer's worker.

Standard library only, unless asked for more: it is imported inside the peers' environments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def run(work: Coroutine[Any, Any, None], *options: str) -> None:
    """Run until it is stopped, on uvloop if that is among the options."""
    factory = None
    if "uvloop" in options:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)
