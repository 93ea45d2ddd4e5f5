"""Redis behind a network that loses replies or cuts connections, and behind TLS with certificates that do not fit."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trustme
from support.proxy import Proxy
from support.redis import Redis
from support.waiting import until_async
from support.work import at_work

from unstuck import ConfigError, StoreUnavailable, Unstuck, open_store
from unstuck.operations.verify import broken_rules
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Status
from unstuck.protocol.leases import Recovery
from unstuck.protocol.outcome import Settled, completed, failed, released
from unstuck.protocol.store import Store
from unstuck.stores.redis import client
from unstuck.stores.redis.statements import scripts
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import enqueued, leased, look, new, one_leased, states, trouble

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(redis_server: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis_server.url()) as harness:
        for script in scripts().values():  # so that they are named by their hashes from the first call on
            await harness.client.script_load(script.text)
        yield harness


@pytest.fixture
async def proxy(redis_server: Redis) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def far(harness: RedisHarness, proxy: Proxy) -> str:
    """The harness's store, seen through the proxy."""
    return proxy.through(harness.url)


@pytest.fixture
async def store(far: str) -> AsyncIterator[Store]:
    async with open_store(far) as store:
        yield store


def call_of(step: str) -> bytes:
    """How a step is seen on the wire."""
    return scripts()[step].sha.encode()


async def test_a_settle_whose_reply_was_lost_is_repeated_and_not_lost(
    harness: RedisHarness, store: Store, proxy: Proxy
) -> None:
    job = await one_leased(store)
    outcome = completed(job.lease, "done", then=(new("next"),))
    proxy.drop_reply(to=call_of("settle"))
    with pytest.raises(StoreUnavailable):
        await store.settle([outcome])

    assert (await look(harness.store, job.ref)).status is Status.COMPLETED
    assert await store.settle([outcome]) == [Settled.REPEATED]
    assert await store.settle([failed(job.lease, trouble())]) == [Settled.LOST]
    assert await states(harness.store, "next") == {"pending": 1}
    assert proxy.counts.replies_dropped == 1


async def test_an_enqueue_whose_reply_was_lost_may_be_repeated(
    harness: RedisHarness, store: Store, proxy: Proxy
) -> None:
    jobs = [new(key=str(number), payload=number) for number in range(5)]
    proxy.drop_reply(to=call_of("enqueue"))
    with pytest.raises(StoreUnavailable):
        await store.enqueue(jobs)

    assert await states(harness.store) == {"pending": 5}
    assert [(answer.created, answer.same) for answer in await store.enqueue(jobs)] == [(False, True)] * 5
    assert await states(harness.store) == {"pending": 5}


async def test_leases_whose_reply_was_lost_come_back_as_strangers(
    harness: RedisHarness, store: Store, proxy: Proxy
) -> None:
    await enqueued(store, 3)
    proxy.drop_reply(to=call_of("lease"))
    with pytest.raises(StoreUnavailable):
        await leased(store, 3)

    assert await states(harness.store) == {"processing": 3}
    strangers = (await store.heartbeat(WorkerInfo(id="w", queues=("q",)), [])).strangers
    assert await store.settle([released(lease) for lease in strangers]) == [Settled.APPLIED] * 3
    assert [job.attempts for job in await leased(store, 3)] == [1, 1, 1]


async def test_a_reply_that_was_cut_in_the_middle_is_not_taken_for_one(
    harness: RedisHarness, store: Store, proxy: Proxy
) -> None:
    job = await one_leased(store)
    await harness.age(3600.0)
    proxy.cut_after(2)
    with pytest.raises(StoreUnavailable):
        await store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))

    assert (await look(harness.store, job.ref)).owner == "reaper"
    assert await store.settle([completed(job.lease)]) == [Settled.LOST]
    assert await broken_rules(harness.store) == []


async def test_a_worker_ends_every_job_once_though_connections_are_cut_all_the_while(
    far: str, harness: RedisHarness, proxy: Proxy
) -> None:
    runs: list[int] = []
    async with Unstuck(far) as app:

        @app.task(heartbeat=0.2, lease=2.0)
        async def work(number: int) -> None:
            runs.append(number)
            await asyncio.sleep(0.01)

        async with Unstuck(harness.url) as near:
            await near.enqueue_many([work.call(number) for number in range(200)])

        async def over() -> bool:
            return (await states(harness.store, "default")) == {"completed": 200}

        async with at_work(app, concurrency=5, recovery=1.0):
            for number in range(20):
                enough = 8 * (number + 1)
                await until_async(lambda: len(runs) >= enough, 60, f"{enough} jobs to run")  # noqa: B023
                proxy.reset()
            await until_async(over, 60, "all jobs to end")
    assert set(runs) == set(range(200))
    assert await broken_rules(harness.store) == []


class Secured(Redis):
    """A server that speaks TLS, and the certificates of those that vouch for it, or do not."""

    def __init__(self, certificates: Path, name: str, *, both: bool) -> None:
        self._certificates = folder = certificates
        right, wrong = trustme.CA(), trustme.CA()
        right.cert_pem.write_to_path(folder / "right.pem")
        wrong.cert_pem.write_to_path(folder / "wrong.pem")
        for whose, issued in (("server", right.issue_cert(name)), ("client", right.issue_cert("worker"))):
            issued.private_key_pem.write_to_path(folder / f"{whose}.key")
            issued.cert_chain_pems[0].write_to_path(folder / f"{whose}.pem")
        settings = {
            "tls-port": "free",
            "tls-cert-file": str(folder / "server.pem"),
            "tls-key-file": str(folder / "server.key"),
            "tls-ca-cert-file": str(folder / "right.pem"),
            "tls-auth-clients": "yes" if both else "no",
        }
        super().__init__("redis", settings=settings)

    def safely(self, options: str) -> str:
        """Its URL with these options, where ``@`` is the folder of the certificates."""
        return (
            f"rediss://127.0.0.1:{self.ports['tls-port']}/0?{options.replace('@', f'{self._certificates}/')}"
        )


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    with Secured(tmp_path, "127.0.0.1", both=False) as secured:
        yield secured


async def test_a_server_with_tls_is_used_if_its_certificate_is_vouched_for(secured: Secured) -> None:
    async with open_store(secured.safely("ssl_ca_certs=@right.pem")) as store:
        await store.migrate()
        job = await one_leased(store)
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def test_a_server_without_tls_that_is_taken_for_one_with_it_leads_to_the_cause(
    redis7: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the end of a command, and we for its answer."""
    monkeypatch.setattr(client, "CONNECTING", 0.5)
    with pytest.raises(StoreUnavailable, match="use rediss:// for a server with TLS"):
        async with open_store(f"rediss://127.0.0.1:{redis7.port}/0"):
            pass


@pytest.mark.parametrize("options", ["ssl_ca_certs=@wrong.pem", "", "ssl_ca_certs=@server.key"])
async def test_certificates_that_do_not_fit_are_settings_to_be_fixed(secured: Secured, options: str) -> None:
    with pytest.raises(ConfigError, match="ssl_ca_certs in the store's URL names"):
        async with open_store(secured.safely(options)):
            pass


@pytest.mark.parametrize(
    "options",
    ["ssl_ca_certs=@nowhere.pem", "ssl_cert_reqs=maybe", "ssl_check_hostname=perhaps", "ssl_keyfile="],
)
def test_options_of_tls_that_cannot_be_are_refused_at_once(tmp_path: Path, options: str) -> None:
    with pytest.raises(ConfigError, match=options.partition("=")[0]):
        open_store(f"rediss://h/0?{options.replace('@', f'{tmp_path}/')}")


def test_options_of_tls_without_tls_are_refused() -> None:
    with pytest.raises(ConfigError, match="is for rediss://"):
        open_store("redis://h/0?ssl_cert_reqs=none")


async def test_a_server_by_another_name_and_one_that_wants_to_know_us(tmp_path: Path) -> None:
    with Secured(tmp_path, "redis.example.org", both=True) as secured:
        ours = "ssl_certfile=@client.pem&ssl_keyfile=@client.key"
        with pytest.raises(ConfigError, match=r"not valid for '127\.0\.0\.1'"):
            async with open_store(secured.safely(f"ssl_ca_certs=@right.pem&{ours}")):
                pass
        unnamed = "ssl_ca_certs=@right.pem&ssl_check_hostname=false"
        with pytest.raises(StoreUnavailable):
            async with open_store(secured.safely(unnamed)):
                pass
        async with open_store(secured.safely(f"{unnamed}&{ours}")) as store:
            await enqueued(store)
