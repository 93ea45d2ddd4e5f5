"""Columns of a foreign table: their types, and what they can be used for."""

from __future__ import annotations

from typing import NamedTuple

TIMES = ("lease", "beat", "run_at", "started", "created", "updated")
_NUMBERS = ("attempts", "max_attempts", "expected")
_TEXTS = ("fail_code", "fail_reason", "error_code", "error_message")


class Column(NamedTuple):
    """``empty``: may be null; ``usual``: has a default; ``made``: only the server writes it; ``kind``: the category of its type."""

    type: str
    empty: bool = True
    usual: bool = False
    made: bool = False
    kind: str = "S"

    @property
    def must(self) -> bool:
        """Whether a row cannot be inserted without a value for it."""
        return not self.empty and not self.usual

    @property
    def text(self) -> bool:
        return self.kind == "S"

    def none(self, itself: str) -> str:
        """The SQL that is written when there is no value; ``itself`` keeps the present one."""
        return "NULL" if self.empty else "DEFAULT" if self.usual else itself

    def serves(self, name: str) -> bool:
        """Whether its type fits the use that the layout names it for."""
        if name in TIMES:
            return self.kind == "D" and not self.type.startswith("time ")
        if name in _NUMBERS:
            return self.kind == "N"
        if name in _TEXTS:
            return self.text
        return name != "stage" or self.kind in "SE"

    def writable(self, name: str) -> bool:
        """Whether it may be written. A stage of an enum type is not: our value might not be in the enum."""
        return not self.made and (name != "stage" or self.text)
