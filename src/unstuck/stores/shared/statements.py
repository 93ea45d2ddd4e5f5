"""Reads the statement files of a store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

_INDEX = re.compile(
    r"^CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(\w+) ON [^;]+"
    r"|^DROP INDEX (?:CONCURRENTLY )?(?:IF EXISTS )?(?:\{schema\}\.)?(\w+)",
    re.MULTILINE,
)


def statements(package: str, folder: str) -> dict[str, str]:
    """The text of every statement file in a folder of a store, by the name of its operation.

    The first part of the folder is the language, which is also the suffix of its files: ``sql``, ``lua/shared``.
    """
    language, *inner = folder.split("/")
    directory = files(package).joinpath(language, *inner)
    return {
        entry.name.removesuffix(f".{language}"): entry.read_text(encoding="utf-8")
        for entry in sorted(directory.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(f".{language}")
    }


def needed_by(migration: str) -> int:
    """The schema version that a release must know to work after this migration: the number in ``-- needs 3`` or ``// needs 3``, else 0."""
    found = re.search(r"^(?:--|//) needs (\d+)$", migration, re.MULTILINE)
    return int(found[1]) if found else 0


def indexes(migrations: Iterable[str]) -> dict[str, str]:
    """The statements that create the indexes which exist after these migrations, by name; without ``CONCURRENTLY``."""
    made: dict[str, str] = {}
    for text in migrations:
        for found in _INDEX.finditer(text):
            made.pop(found[2], None)  # it was dropped
            if found[1]:
                made[found[1]] = found[0].replace("CONCURRENTLY ", "", 1)
    return made
