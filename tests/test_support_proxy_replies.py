"""Replies that the proxy cuts short or swallows."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.processes import until_async
from support.proxy import Proxy
from support.toystore import ToyStore, connected

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> ToyStore:
    return ToyStore()


@pytest.fixture
async def proxy(store: ToyStore) -> AsyncIterator[Proxy]:
    async with store.listening() as port, Proxy("127.0.0.1", port) as proxy:
        yield proxy


@pytest.mark.parametrize("count", [0, 3, 8])
async def test_a_cut_lets_just_so_many_bytes_arrive(proxy: Proxy, count: int) -> None:
    async with connected(proxy.port) as client:
        proxy.cut_after(count)
        assert await client.ask(b"one\n") == b"did one\n"[:count]
        assert await asyncio.wait_for(client.reader.read(), 5) == b""
    async with connected(proxy.port) as client:
        assert await client.ask(b"two\n") == b"did two\n"
    assert proxy.counts.cuts == 1


async def test_a_request_in_two_parts_is_recognized(proxy: Proxy) -> None:
    async with connected(proxy.port) as client:
        proxy.drop_reply(to=b"commit")
        client.writer.write(b"com")
        await until_async(lambda: proxy.counts.to_server == 3, 5, "the first part to pass")
        with pytest.raises(ConnectionResetError):
            await client.ask(b"mit\n")


async def test_healing_saves_a_reply_that_has_not_come_yet(proxy: Proxy) -> None:
    async with connected(proxy.port) as client:
        proxy.drop_reply()
        client.writer.write(b"one")
        await until_async(lambda: proxy.counts.to_server == 3, 5, "the request to pass")
        proxy.heal()
        assert await client.ask(b"\n") == b"did one\n"


async def test_a_dropped_reply_leaves_the_request_done(proxy: Proxy, store: ToyStore) -> None:
    async with connected(proxy.port) as client:
        proxy.drop_reply(to=b"commit")
        assert await client.ask(b"begin\n") == b"did begin\n"
        with pytest.raises(ConnectionResetError):
            await client.ask(b"commit\n")

    assert store.kept == [b"begin\n", b"commit\n"]
    assert (proxy.counts.replies_dropped, proxy.counts.to_client) == (1, 10)
    async with connected(proxy.port) as client:
        assert await client.ask(b"commit\n") == b"did commit\n"
