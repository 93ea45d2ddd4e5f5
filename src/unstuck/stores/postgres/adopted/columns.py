"""Columns of a foreign table: what they are, and what can be done with them."""

from __future__ import annotations

from typing import NamedTuple

TIMES = ("lease", "beat", "run_at", "started", "created", "updated")
_NUMBERS = ("attempts", "max_attempts", "expected")
_TEXTS = ("fail_code", "fail_reason", "error_code", "error_message")


class Column(NamedTuple):
    """``empty``: it may be; ``usual``: it has a default; ``made``: only the server writes it; ``kind`` is its type's."""

    type: str
    empty: bool = True
    usual: bool = False
    made: bool = False
    kind: str = "S"

    @property
    def must(self) -> bool:
        """Whether a row cannot be made without a value for it."""
        return not self.empty and not self.usual

    @property
    def text(self) -> bool:
        return self.kind == "S"

    def none(self, itself: str) -> str:
        """What is written when there is nothing to say."""
        return "NULL" if self.empty else "DEFAULT" if self.usual else itself

    def serves(self, name: str) -> bool:
        """Whether it can be what the layout says it is."""
        if name in TIMES:
            return self.kind == "D" and not self.type.startswith("time ")
        if name in _NUMBERS:
            return self.kind == "N"
        if name in _TEXTS:
            return self.text
        return name != "stage" or self.kind in "SE"

    def writable(self, name: str) -> bool:
        """A stage that is one of a few words is not written: it might not be among them."""
        return not self.made and (name != "stage" or self.text)
