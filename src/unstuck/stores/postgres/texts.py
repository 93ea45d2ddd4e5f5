"""The statement files of this folder, made out for one schema."""

from __future__ import annotations

from unstuck.stores.postgres import leased, rows
from unstuck.stores.postgres.place import Place
from unstuck.stores.statements import statements


def texts(place: Place) -> dict[str, str]:
    found = statements("unstuck.stores.postgres", ".sql")
    found["enqueue_fresh"] = found["enqueue"].replace("ON CONFLICT (id, queue) DO NOTHING\n", "")
    shared = statements("unstuck.stores.postgres.shared", ".sql")
    parts = {f"{{{name}}}": text.rstrip() for name, text in shared.items()}
    parts |= {"{job}": rows.JOB, "{row}": leased.ROW, "{lists}": leased.LISTS, "{schema}": place.quoted}
    for part, meaning in parts.items():
        found = {name: text.replace(part, meaning) for name, text in found.items()}
    return found
