"""Docstrings as Markdown: they name code as ``:class:`Policy``` and announce blocks of code by two colons."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([\w.]+)`")
BLOCK = re.compile(r"::(?=\n\n {4})")


class Docstrings(griffe.Extension):
    """Reads every docstring before it is rendered."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """One object of the package was found."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The same text, with the roles as code and the blocks as Markdown has them."""
    return BLOCK.sub(":", ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", text))
