"""Reads the statement files of a graph."""

from __future__ import annotations

from importlib.resources import files


def statements(package: str, folder: str) -> dict[str, str]:
    """The text of every statement file in a folder of a graph's package, by the name of its operation, in order of names.

    The first part of the folder is the language, which is also the suffix of its files: ``sql``, ``sql/migrations``, ``cypher``.
    """
    language, *inner = folder.split("/")
    directory = files(package).joinpath(language, *inner)
    return {
        entry.name.removesuffix(f".{language}"): entry.read_text(encoding="utf-8")
        for entry in sorted(directory.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(f".{language}")
    }
