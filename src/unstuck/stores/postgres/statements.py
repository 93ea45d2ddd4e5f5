"""The statement files of this folder, completed for one schema."""

from __future__ import annotations

from functools import reduce

from unstuck.stores.postgres import lease_answer, rows
from unstuck.stores.postgres.address import Address
from unstuck.stores.shared.statements import statements


def statements_for(address: Address) -> dict[str, str]:
    found = statements("unstuck.stores.postgres", "sql")
    found["enqueue_fresh"] = found["enqueue"].replace("ON CONFLICT (id, queue) DO NOTHING\n", "")
    # For one queue, of which nobody has to know whose turn it is.
    alone = {"{among_several}": "", "{standing}": "front", "{turns}": ""}
    found["lease_of_one"] = reduce(lambda text, part: text.replace(part, alone[part]), alone, found["lease"])
    shared = statements("unstuck.stores.postgres", "sql/shared")
    parts = {f"{{{name}}}": text.rstrip() for name, text in shared.items()}
    parts |= {
        "{job}": rows.JOB,
        "{row}": lease_answer.ROW,
        "{lists}": lease_answer.LISTS,
        "{turns}": ", quota.queue, quota.turn, quota.step",
        "{schema}": address.quoted,
    }
    for part, meaning in parts.items():
        found = {name: text.replace(part, meaning) for name, text in found.items()}
    return {
        name: text.replace("{stands}", "" if name == "lease_of_one" else "stands, ")
        for name, text in found.items()
    }
