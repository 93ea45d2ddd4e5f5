"""Reads the statement files that lie beside a store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

_INDEX = re.compile(
    r"^CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(\w+) ON [^;]+"
    r"|^DROP INDEX (?:CONCURRENTLY )?(?:IF EXISTS )?(?:\{schema\}\.)?(\w+)",
    re.MULTILINE,
)


def statements(package: str, suffix: str) -> dict[str, str]:
    """The text of every statement file of a store's folder, by the name of its operation."""
    return {
        entry.name.removesuffix(suffix): entry.read_text(encoding="utf-8")
        for entry in sorted(files(package).iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(suffix)
    }


def indexes(migrations: Iterable[str]) -> dict[str, str]:
    """The statements that make the indexes which files of SQL leave behind, by name; ``CONCURRENTLY`` is not said."""
    made: dict[str, str] = {}
    for text in migrations:
        for found in _INDEX.finditer(text):
            made.pop(found[2], None)  # that was dropped
            if found[1]:
                made[found[1]] = found[0].replace("CONCURRENTLY ", "", 1)
    return made
