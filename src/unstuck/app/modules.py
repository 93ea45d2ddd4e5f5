"""imported(): a module that somebody named, or one line that says why it cannot be imported."""

from __future__ import annotations

import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

from unstuck.config.checks import shown
from unstuck.protocol.errors import ConfigError


def imported(module: str, whose: str) -> ModuleType:
    """The module; ``whose`` begins the message of the ConfigError if it cannot be had."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{whose}: {_not_found(module, error.name or '')}") from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{whose}: module {module!r} cannot be imported: {why}{_raised_at(error)}"
        ) from error


def module_name(name: object) -> str:
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"include has {shown(name)}: it must name modules, for example shop.mail")
    return name


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
