"""Fills in the statement files for one label. Each statement answers with one row of one value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from unstuck.stores.shared.statements import statements

_ANSWER = " AS answer"
# The priority of `j`, whatever somebody has written there: comparing text would make the whole statement fail.
_PRIORITY = "CASE WHEN j.priority > 9 THEN 9 WHEN j.priority > 0 THEN toInteger(j.priority) ELSE 0 END"


@cache
def statements_for(label: str) -> dict[str, str]:
    shared = statements("unstuck.stores.neo4j", "cypher/shared")
    parts = {f"{{{name}}}": _bare(text) for name, text in shared.items()}
    parts |= {"{job}": "properties(j)", "{priority}": _PRIORITY, "{label}": label}
    found = {name: _bare(text) for name, text in statements("unstuck.stores.neo4j", "cypher").items()}
    for part, meaning in parts.items():
        found = {name: text.replace(part, meaning) for name, text in found.items()}
    return found


def guarded(label: str, parts: Sequence[str]) -> str:
    """Join statements to one that answers with a row of their answers, and with no row in a database other than ours.

    The driver reconnects by itself, to whatever server listens at the address then.
    """
    names = [f"answer{number}" for number in range(len(parts))]
    calls = [f"CALL () {{\n{_renamed(text, name)}\n}}" for text, name in zip(parts, names, strict=True)]
    here = f"MATCH (here:{label}Store {{name: 'store'}}) WHERE here.birth = $birth WITH 1 AS here"
    return "\n".join([here, *calls, f"RETURN {', '.join(names)}"])


def _renamed(text: str, name: str) -> str:
    before, _, after = text.rpartition(_ANSWER)
    return f"{before} AS {name}{after}"


def _bare(text: str) -> str:
    """The text without comments, which the server would parse each time."""
    lines = (line.partition("//")[0].rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)
