"""The statement files of this folder, made out for one schema."""

from __future__ import annotations

from unstuck.stores.postgres import rows
from unstuck.stores.postgres.place import Place
from unstuck.stores.statements import statements


def texts(place: Place) -> dict[str, str]:
    found = statements("unstuck.stores.postgres", ".sql")
    found["enqueue_fresh"] = found["enqueue"].replace("ON CONFLICT (id, queue) DO NOTHING\n", "")
    return {
        name: text.replace("{schema}", place.quoted).replace("{job}", rows.JOB)
        for name, text in found.items()
    }
