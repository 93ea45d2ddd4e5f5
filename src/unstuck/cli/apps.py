"""load_app(): the app that MODULE:APP names."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path

from unstuck import ConfigError, Unstuck


def load_app(name: str) -> Unstuck:
    """The app that MODULE:APP names, looked for in the current folder first."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"app {name!r}: {_not_found(module, error.name or '')}") from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"app {name!r}: module {module!r} cannot be imported: {why}{_raised_at(error)}"
        ) from error
    found = getattr(loaded, attribute, None)
    if found is None:
        apps = [known for known, value in vars(loaded).items() if isinstance(value, Unstuck)]
        has = ", ".join(apps) or "no Unstuck(…)"
        raise ConfigError(f"app {name!r}: module {module!r} has no {attribute!r}: it has {has}")
    if not isinstance(found, Unstuck):
        raise ConfigError(f"app {name!r} is of type {type(found).__name__}, not an Unstuck(…)")
    return found


def _not_found(module: str, missing: str) -> str:
    if module.endswith(".py"):
        return f"{module!r} is a file, not a module: write {module.removesuffix('.py')!r}"
    if module == missing or module.startswith(f"{missing}."):
        return f"module {missing!r} is not found; start in the folder that has it"
    return f"module {module!r} imports {missing!r}, which is not found; install it, or start in the folder that has it"


def _raised_at(error: Exception) -> str:
    if isinstance(error, SyntaxError):  # names its line itself
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (at {Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
