"""Assembles the scripts: the shared files that an operation needs, then its own file."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import NamedTuple

from unstuck.stores.shared.statements import statements

_NEEDS = re.compile(r"^-- needs: (.*)$", re.MULTILINE)


class Script(NamedTuple):
    text: str
    sha: str


@cache
def scripts() -> dict[str, Script]:
    """The scripts of all operations, by name."""
    shared = statements("unstuck.stores.redis", "lua/shared")
    made = {}
    for name, text in statements("unstuck.stores.redis", "lua").items():
        needs = _NEEDS.search(text)
        parts = ["queue", *(needs[1].split(", ") if needs else ())]
        whole = "\n".join([*(shared[part] for part in parts), text])
        made[name] = Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())
    return made
