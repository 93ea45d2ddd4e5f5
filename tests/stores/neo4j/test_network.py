"""Connections that are reset, on both event loops: no error of the driver or the loop gets out, and the pool recovers."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import neo4j
import pytest
from support.neo4j import Neo4j
from support.proxy import Proxy
from support.waiting import until_async

from unstuck import StoreUnavailable, open_store
from unstuck.protocol.outcome import Settled, completed
from unstuck.protocol.store import Store
from unstuck.stores.neo4j.sessions import MOST
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import leased, new, one_leased, states

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]
ROUNDS = MOST + 2  # a pool that loses a connection each time would be empty long before


@pytest.fixture(params=["asyncio", *(["uvloop"] if find_spec("uvloop") else [])])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness


@pytest.fixture
async def proxy(neo4j_server: Neo4j) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", neo4j_server.port) as proxy:
        yield proxy


@pytest.fixture
def url(harness: Neo4jHarness, proxy: Proxy) -> str:
    """The harness's store, seen through the proxy."""
    return proxy.through(harness.url)


async def together(store: Store, count: int = MOST) -> None:
    """Use so many connections at the same time that none can be missing."""
    await asyncio.gather(*(store.enqueue([new()]) for _ in range(count)))


async def idle_and_reset(proxy: Proxy) -> None:
    """Reset connections that nobody uses, and let the loop's transports notice."""
    proxy.reset()
    await until_async(lambda: proxy.open == 0, 30, "the connections to be gone")
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_pool_whose_idle_connections_were_reset_again_and_again_is_whole_again(
    harness: Neo4jHarness, url: str, proxy: Proxy
) -> None:
    async with open_store(url) as store:
        for _ in range(ROUNDS):
            await together(store, 2)
            await idle_and_reset(proxy)
            await store.enqueue([new()])  # is sent again, because that is safe

        await together(store)
    assert await states(harness.store) == {"pending": 3 * ROUNDS + MOST}


async def test_what_is_not_safe_to_send_again_is_refused_in_our_words(url: str, proxy: Proxy) -> None:
    async with open_store(url) as store:
        job = await one_leased(store)
        for _ in range(ROUNDS):
            await together(store, 2)
            await idle_and_reset(proxy)
            with pytest.raises(StoreUnavailable, match="the server cannot be used now"):
                await leased(store, 1)

        await together(store)
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def test_connections_that_are_too_old_and_reset_do_not_empty_the_pool(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver closes a connection past its lifetime when it is asked for one, before it belongs to a session."""
    short = functools.partial(neo4j.AsyncGraphDatabase.driver, max_connection_lifetime=0)
    monkeypatch.setattr(neo4j.AsyncGraphDatabase, "driver", short)
    async with open_store(url) as store:
        for _ in range(ROUNDS):
            await together(store, 2)
            await idle_and_reset(proxy)
            await store.enqueue([new()])

        await together(store)


async def test_calls_that_were_under_way_end_in_our_words_and_the_pool_recovers(
    url: str, proxy: Proxy
) -> None:
    async def called(store: Store) -> None:
        with suppress(StoreUnavailable):
            await store.enqueue([new()])

    async with open_store(url) as store:
        for round_ in range(ROUNDS):
            calls = [asyncio.create_task(called(store)) for _ in range(3 * MOST)]
            for _ in range(5 * round_):  # in other moments each time
                await asyncio.sleep(0)
            proxy.reset()
            await asyncio.gather(*calls)

        await together(store)
