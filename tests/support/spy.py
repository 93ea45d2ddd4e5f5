"""A store between a worker and its real store: it counts what is asked, and can be made to fail."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, cast

from unstuck import Unstuck
from unstuck.protocol.store import Store


class Asked(NamedTuple):
    """One call, at a moment of the monotonic clock."""

    name: str
    args: tuple[Any, ...]
    at: float
    named: Mapping[str, Any] = {}


class Book:
    """What a store and its twins were asked, and which of their operations fail with what ("*": all of them)."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.fails: dict[str, Exception] = {}

    def of(self, name: str) -> list[Asked]:
        """The calls of one operation that had something to do."""
        return [one for one in list(self.asked) if one.name == name and (not one.args or one.args[0])]

    def trouble(self, name: str) -> None:
        if error := self.fails.get(name) or self.fails.get("*"):
            raise error


class Spied:
    def __init__(self, store: Store, book: Book) -> None:
        self._store = store
        self.book = book

    async def __aenter__(self) -> Self:
        self.book.trouble("open")
        await self._store.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._store.__aexit__(None, None, None)

    def twin(self) -> "Spied":
        return Spied(self._store.twin(), self.book)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            self.book.asked.append(Asked(name, args, time.monotonic(), kwargs))
            self.book.trouble(name)
            return await method(*args, **kwargs)

        return ask


async def spied(app: Unstuck) -> Book:
    """From now on the app's store, and all that workers make of it, is watched."""
    book = Book()
    spy = Spied(await app.store(), book)
    app._stores[asyncio.get_running_loop()][app.url] = cast(Store, spy)
    return book
