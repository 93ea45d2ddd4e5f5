"""A tool, declared once: what it is called, when to use it, what it takes, what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

import mcp_types
from mcp_types import CallToolResult, ToolAnnotations
from msgspec import Struct

from unstuck_memory.mcp import arguments
from unstuck_memory.mcp.schemas import answer_schema, arguments_schema
from unstuck_memory.mcp.served import Served

A = TypeVar("A", bound=Struct)


def _hints(*, read_only: bool = False, destructive: bool = False, idempotent: bool = True) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=read_only,
        destructive_hint=destructive,
        idempotent_hint=idempotent,
        open_world_hint=False,
    )


READS = _hints(read_only=True)
ADDS = _hints()
STATES = _hints(idempotent=False)  # what is stated again gets a new version, or a new job
DELETES = _hints(destructive=True)


@dataclass(frozen=True)
class Tool:
    """``group`` is where it is listed: among the few, among all, or only for those who debug."""

    name: str
    description: str
    takes: type[Struct]
    answers: type[Struct]
    hints: ToolAnnotations
    call: Callable[[Served, Any], Awaitable[CallToolResult]]
    group: Literal["core", "all", "debug"]

    async def __call__(self, served: Served, given: Mapping[str, Any] | None) -> CallToolResult:
        return await self.call(served, arguments.read(self.name, self.takes, self.input_schema, given))

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        return arguments_schema(self.takes)

    @cached_property
    def listed(self) -> mcp_types.Tool:
        return mcp_types.Tool(
            name=self.name,
            description=self.description,
            input_schema=self.input_schema,
            output_schema=answer_schema(self.answers),
            annotations=self.hints,
        )


def tool(
    *,
    group: Literal["core", "all", "debug"] = "all",
    takes: type[A],
    answers: type[Struct],
    hints: ToolAnnotations,
    description: str,
) -> Callable[[Callable[[Served, A], Awaitable[CallToolResult]]], Tool]:
    """Declare the function below as the tool of its name."""

    def declared(call: Callable[[Served, A], Awaitable[CallToolResult]]) -> Tool:
        text = " ".join(description.split())
        name = cast("Any", call).__name__
        return Tool(name, text, takes, answers, hints, call, group)

    return declared
