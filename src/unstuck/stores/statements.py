"""Reads the statement files that lie beside a store."""

from __future__ import annotations

from importlib.resources import files


def statements(package: str, suffix: str) -> dict[str, str]:
    """The text of every statement file of a store's folder, by the name of its operation."""
    return {
        entry.name.removesuffix(suffix): entry.read_text(encoding="utf-8")
        for entry in sorted(files(package).iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(suffix)
    }
