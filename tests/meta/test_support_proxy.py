"""The proxy's faults, as a client and a server on real sockets see them."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from support.processes import until_async
from support.proxy import Proxy
from support.servers import free_port
from support.toystore import ToyStore, connected

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> ToyStore:
    return ToyStore()


@pytest.fixture
async def proxy(store: ToyStore) -> AsyncIterator[Proxy]:
    async with store.listening() as port, Proxy("127.0.0.1", port) as proxy:
        yield proxy


async def test_bytes_pass_and_are_counted(proxy: Proxy) -> None:
    async with connected(proxy.port) as client:
        assert await client.ask(b"one\n") == b"did one\n"

        counts = proxy.counts
        assert (proxy.open, counts.accepted) == (1, 1)
        assert (counts.from_client, counts.to_server, counts.from_server, counts.to_client) == (4, 4, 8, 8)
    await until_async(lambda: proxy.open == 0, 5, "the proxy to notice that the client left")


async def test_a_stall_holds_bytes_until_healed(proxy: Proxy, store: ToyStore) -> None:
    async with connected(proxy.port) as client:
        await client.ask(b"one\n")
        proxy.stall()
        asking = asyncio.create_task(client.ask(b"two\n"))
        await until_async(lambda: proxy.counts.from_client == 8, 5, "the request to reach the proxy")

        async with connected(proxy.port) as late:
            late.writer.write(b"three\n")
            await until_async(lambda: proxy.counts.from_client == 14, 5, "a new connection's request")
            assert (store.kept, asking.done(), proxy.open) == ([b"one\n"], False, 2)

            proxy.heal()
            assert await asking == b"did two\n"
            assert await asyncio.wait_for(late.reader.readline(), 5) == b"did three\n"


async def test_either_side_notices_when_the_other_hangs_up(proxy: Proxy, store: ToyStore) -> None:
    async with connected(proxy.port) as client:
        assert await client.ask(b"bye\n") == b""

    async with connected(proxy.port) as client:
        await client.ask(b"one\n")
        proxy.stall()
    with pytest.raises(AssertionError):
        await until_async(lambda: store.clients == 0, 0.05, "news that the stall should hold back")
    proxy.heal()
    await until_async(lambda: store.clients == 0, 5, "the store to hear of it")


async def test_a_stalled_connection_can_be_reset(proxy: Proxy) -> None:
    async with connected(proxy.port) as client:
        await client.ask(b"one\n")
        proxy.stall()
        client.writer.write(b"two\n")
        await until_async(lambda: proxy.counts.from_client == 8, 5, "the request to reach the proxy")

        proxy.reset()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(client.reader.read(), 5)
    async with connected(proxy.port) as client:
        assert await client.ask(b"two\n") == b"did two\n"
    assert proxy.counts.to_server == 8  # what the stall held back did not go on


async def test_a_reset_may_spare_or_include_new_connections(proxy: Proxy) -> None:
    proxy.reset(new=True)
    async with connected(proxy.port) as client:
        with pytest.raises(ConnectionResetError):
            await client.ask(b"one\n")

    proxy.reset()
    async with connected(proxy.port) as client:
        assert await client.ask(b"one\n") == b"did one\n"
    assert proxy.counts.resets == 1


async def test_a_reset_includes_connections_the_proxy_has_not_accepted_yet(proxy: Proxy) -> None:
    # Blocking: the event loop, and with it the proxy, has no turn before the reset.
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client:
        proxy.reset()

        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(client.recv, 1)


async def test_refusal_spares_open_connections_and_keeps_the_port(proxy: Proxy) -> None:
    async with connected(proxy.port) as client:
        await client.ask(b"one\n")
        port = proxy.port
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert await client.ask(b"two\n") == b"did two\n"

        proxy.heal()
        assert proxy.port == port
        async with connected(proxy.port) as late:
            assert await late.ask(b"three\n") == b"did three\n"


async def test_a_delay_slows_each_way_and_ends_with_healing(proxy: Proxy) -> None:
    clock = asyncio.get_running_loop().time
    async with connected(proxy.port) as client:
        proxy.delay(0.03)
        begin = clock()
        assert await client.ask(b"one\n") == b"did one\n"
        assert clock() - begin >= 0.06

        proxy.delay(60)
        asking = asyncio.create_task(client.ask(b"two\n"))
        await until_async(lambda: proxy.counts.from_client == 8, 5, "the request to reach the proxy")
        proxy.heal()
        assert await asking == b"did two\n"


async def test_a_dead_server_resets_its_clients() -> None:
    async with Proxy("127.0.0.1", free_port()) as proxy, connected(proxy.port) as client:
        with pytest.raises(ConnectionResetError):
            await client.ask(b"one\n")


async def test_a_proxy_that_leaves_while_connections_close_leaves_none_open(store: ToyStore) -> None:
    async with store.listening() as port:
        for turns in range(30):  # of the event loop: in one of them the connections are just about to close
            async with Proxy("127.0.0.1", port) as proxy:
                async with connected(proxy.port) as client:
                    await client.ask(b"one\n")
                for _ in range(turns):
                    await asyncio.sleep(0)
            await until_async(lambda: store.clients == 0, 5, f"the store to hear of it, after {turns} turns")


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
