"""Neo4j behind TLS, as hosted databases always are."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from support.command import unstuck
from support.neo4j import QUEUE, Neo4j

from unstuck import open_store
from unstuck.protocol.errors import ConfigError, StoreUnavailable
from unstuck.protocol.outcome import Settled, completed
from unstuck.testing.conformance.given import one_leased

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.long]


@pytest.fixture(autouse=True)
def goodbyes() -> Iterator[None]:
    """The driver closes TLS in the background: a loop that ends before the server's farewell leaves a socket behind.

    That is collected here, and not in a test of something else.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of the server, of the authority that vouches for it, and of one that does not."""
    folder = tmp_path_factory.mktemp("certificates")
    right, wrong = trustme.CA(), trustme.CA()
    right.cert_pem.write_to_path(folder / "right.pem")
    wrong.cert_pem.write_to_path(folder / "wrong.pem")
    issued = right.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "private.key")
    issued.cert_chain_pems[0].write_to_path(folder / "public.crt")
    return folder


@pytest.fixture(scope="module")
def secured(certificates: Path) -> Iterator[Neo4j]:
    policy = {
        "enabled": "true",
        "base_directory": str(certificates),
        "private_key": "private.key",
        "public_certificate": "public.crt",
        "client_auth": "NONE",
    }
    settings = {f"dbms.ssl.policy.bolt.{name}": value for name, value in policy.items()}
    # The fixture itself asks without TLS whether it is ready.
    with Neo4j(QUEUE, password=True, settings=settings | {"server.bolt.tls_level": "OPTIONAL"}) as server:
        yield server


@pytest.mark.parametrize("scheme", ["bolt+s", "neo4j+s"])
async def test_a_server_that_somebody_trusted_vouches_for_is_used(
    secured: Neo4j, certificates: Path, scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "right.pem"))

    async with open_store(secured.url(scheme)) as store:
        await store.migrate()
        job = await one_leased(store)
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]
    looked = unstuck(tmp_path, "doctor", store=secured.url(scheme))
    assert looked.returncode == 0, looked.stdout + looked.stderr


async def test_a_server_that_nobody_trusted_vouches_for_is_not_used(
    secured: Neo4j, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "wrong.pem"))

    with pytest.raises(ConfigError, match=r"certificate is not trusted \(.*issuer.*SSL_CERT_FILE"):
        async with open_store(secured.url("bolt+s")) as store:
            await store.migrate()
    async with open_store(secured.url("bolt+ssc")) as store:  # vouches for itself
        await store.migrate()


async def test_a_server_without_tls_that_is_taken_for_one_with_it_leads_to_the_cause(
    neo4j_server: Neo4j,
) -> None:
    told = (
        r"\[ConnectionResetError\] the TLS handshake failed; if the server has no TLS, write .* without \+s"
    )
    with pytest.raises(StoreUnavailable, match=told):
        async with open_store(neo4j_server.url("bolt+s")) as store:
            await store.migrate()
