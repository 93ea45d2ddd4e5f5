"""Answers that never exceed their budget: what of them does not fit is left for the next page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from mcp_types import CallToolResult, TextContent

from unstuck import env_int
from unstuck_memory.errors import UnstuckMemoryError

VARIABLE = "UNSTUCK_MEMORY_ANSWER"
LEAST, MOST, USUAL = 1_000, 200_000, 20_000
ENVELOPE = 240  # characters around text and data: the result's own fields, truncated, and the stamp
STAMP = 100  # of these, what is added when the answer is sent: the server's name and version


class AnswerTooSmall(UnstuckMemoryError):
    """Not even the first item fits."""

    def __init__(self, budget: int) -> None:
        super().__init__(
            f"the answer does not fit into {budget:,} characters: {VARIABLE} can be {LEAST:,} to {MOST:,}; ask for less, "
            "or start the server with more"
        )


def answer_budget(environ: Mapping[str, str] = os.environ) -> int:
    """How many characters an answer may have."""
    return env_int(environ, VARIABLE, least=LEAST, most=MOST) or USUAL


def cost(*values: Any) -> int:
    """The characters of these values as JSON, and of the commas behind them."""
    return sum(len(msgspec.json.encode(value).decode()) + 1 for value in values)


class Answer:
    """The text and the data of an answer, which take turns in using up its budget.

    ``add`` puts an item into a list of the data and its lines into the text, or answers False if there is no room left.
    """

    def __init__(self, budget: int, *lists: str, cursor: int = 0, **facts: Any) -> None:
        self.budget = budget
        self.facts = facts
        self._lists: dict[str, list[Any]] = {name: [] for name in lists}
        self._lines: list[str] = []
        cursors = 2 * cursor + 40 if cursor else 0  # in the data, and in the text
        self.room = budget - ENVELOPE - cursors - cost(facts) - cost(self._lists)

    @property
    def empty(self) -> bool:
        """Whether no item was added yet."""
        return not any(self._lists.values())

    def note(self, line: str) -> None:
        """A line of the text alone, if there is plenty of room."""
        if 4 * (needs := cost(line)) <= self.room:
            self.room -= needs
            self._lines.append(line)

    def add(self, name: str, value: Any, text: str | None = None) -> bool:
        needs = cost(value) if text is None else cost(value, text)
        if needs > self.room:
            return False
        self.room -= needs
        self._lists[name].append(value)
        if text is not None:
            self._lines.append(text)
        return True

    def result(self, *, truncated: bool = False, next_cursor: str | None = None) -> CallToolResult:
        data: dict[str, Any] = {**self.facts, **self._lists}
        lines = self._lines
        if truncated or next_cursor is not None:
            data["truncated"] = True
            lines = [*lines, "more: " + (f"cursor {next_cursor}" if next_cursor else "left out")]
        else:
            data["truncated"] = False
        if next_cursor is not None:
            data["next_cursor"] = next_cursor
        result = CallToolResult(
            content=[TextContent(type="text", text="\n".join(lines))], structured_content=data
        )
        if len(result.model_dump_json(by_alias=True, exclude_none=True)) + STAMP > self.budget:
            raise AnswerTooSmall(self.budget)
        return result


def failure(message: str, budget: int = LEAST) -> CallToolResult:
    """One line that says what is wrong."""
    line = " ".join(message.split())
    while len(msgspec.json.encode(line).decode()) > budget - ENVELOPE:
        line = line[: max(len(line) * 3 // 4 - 1, 0)] + "…"
    return CallToolResult(content=[TextContent(type="text", text=line)], is_error=True)
