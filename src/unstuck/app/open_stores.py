"""OpenStores: the stores that an app has open, each on the event loop that opened it."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from unstuck.protocol.store import Store
from unstuck.stores import open_store
from unstuck.stores.shared.fork_guard import ForkGuard


class _Stores(dict[str, Store]):
    """The open stores of one event loop, by their URLs."""

    def __init__(self) -> None:
        super().__init__()
        self.fork_guard = ForkGuard()
        self.opening = asyncio.Lock()


class OpenStores(WeakKeyDictionary[asyncio.AbstractEventLoop, _Stores]):
    async def opened(self, url: str) -> Store:
        """The store of the current event loop, opened when it is first asked for."""
        loop = asyncio.get_running_loop()
        if (stores := self.get(loop)) is None:
            stores = self[loop] = _Stores()
        stores.fork_guard.check()
        if (store := stores.get(url)) is None:
            async with stores.opening:
                if (store := stores.get(url)) is None:
                    store = stores[url] = await _opened(url)
        return store

    async def close(self, url: str) -> None:
        """Close the store on all event loops."""
        here = asyncio.get_running_loop()
        for loop, stores in list(self.items()):
            if stores.fork_guard.forked or (store := stores.pop(url, None)) is None:
                continue
            closing = store.__aexit__(None, None, None)
            if loop is here:
                await closing
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(closing, loop))
            else:
                closing.close()


async def _opened(url: str) -> Store:
    store = await open_store(url).__aenter__()
    try:
        await store.migrate()
    except BaseException:
        await store.__aexit__(None, None, None)
        raise
    return store
