"""Dependencies that write down what becomes of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any


class Book:
    """Writes down what happens, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def make(self, kind: str, name: str = "db") -> Callable[..., Any]:
        """A dependency of this kind."""
        lines = self.lines

        def plain() -> str:
            lines.append(f"make {name}")
            return name

        async def coroutine() -> str:
            await asyncio.sleep(0)
            return plain()

        def generator() -> Iterator[str]:
            yield plain()
            lines.append(f"leave {name}")

        async def async_generator() -> AsyncIterator[str]:
            yield await coroutine()
            lines.append(f"leave {name}")

        kinds: dict[str, Callable[..., Any]] = {
            "plain": plain, "coroutine": coroutine, "generator": generator, "async generator": async_generator,
            "context": asynccontextmanager(async_generator),
        }  # fmt: skip
        return kinds[kind]
