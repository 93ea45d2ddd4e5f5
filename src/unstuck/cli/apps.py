"""load_app(): the app that MODULE:APP names, with all its tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from unstuck import ConfigError, Unstuck
from unstuck.app.modules import imported


def load_app(name: str, include: Sequence[str] = ()) -> Unstuck:
    """The app that MODULE:APP names, looked for in the current folder first, and the modules that have its tasks."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    loaded = imported(module, f"app {name!r}")
    found = getattr(loaded, attribute, None)
    if found is None:
        apps = [known for known, value in vars(loaded).items() if isinstance(value, Unstuck)]
        has = ", ".join(apps) or "no Unstuck(…)"
        raise ConfigError(f"app {name!r}: module {module!r} has no {attribute!r}: it has {has}")
    if not isinstance(found, Unstuck):
        raise ConfigError(f"app {name!r} is of type {type(found).__name__}, not an Unstuck(…)")
    found.import_tasks(include)
    return found
