"""The statement files of this folder, completed for one schema."""

from __future__ import annotations

from unstuck.stores.postgres import lease_answer, rows
from unstuck.stores.postgres.address import Address
from unstuck.stores.shared.statements import statements


def statements_for(address: Address) -> dict[str, str]:
    found = statements("unstuck.stores.postgres", "sql")
    found["enqueue_fresh"] = found["enqueue"].replace("ON CONFLICT (id, queue) DO NOTHING\n", "")
    shared = statements("unstuck.stores.postgres", "sql/shared")
    parts = {f"{{{name}}}": text.rstrip() for name, text in shared.items()}
    parts |= {
        "{job}": rows.JOB,
        "{row}": lease_answer.ROW,
        "{lists}": lease_answer.LISTS,
        "{schema}": address.quoted,
    }
    for part, meaning in parts.items():
        found = {name: text.replace(part, meaning) for name, text in found.items()}
    return found
