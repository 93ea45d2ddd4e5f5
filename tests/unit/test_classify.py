"""What real exceptions mean, met by real clients of real (if rude) servers; and what is stored of them."""

import asyncio
import errno
import socket
import sqlite3
import ssl
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import apsw
import httpx
import httpx2
import msgspec
import neo4j
import openai
import psycopg
import pydantic
import pytest
import redis
from neo4j import exceptions as neo4j_errors
from redis import exceptions as redis_errors

from unstuck import (
    Critical,
    Permanent,
    StoreUnavailable,
    Transient,
    UnreadableJob,
    classify,
    open_store,
    register,
)
from unstuck.protocol.classify import LONGEST_RETRY_AFTER, MESSAGE_LIMIT, STACK_LIMIT, Class, Refusal, failure
from unstuck.protocol.job import Category, Failure, Job, Status
from unstuck.protocol.retry import fate

Client = Callable[[str], object]
TRANSIENT, PERMANENT, CRITICAL = Category.TRANSIENT, Category.PERMANENT, Category.CRITICAL
CANARY = "cAnArY0123456789"
PATIENCE = 0.2
RESET = struct.pack("ii", 1, 0)  # closing then sends RST instead of FIN
SENT = "Wed, 21 Oct 2026 07:28:00 GMT"


class Rude(BaseHTTPRequestHandler):
    """``/429/…?retry-after=7`` answers with that status and that header."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self.send_response_only(int(address.path.split("/")[1]))
        for name, value in [*parse_qsl(address.query), ("content-length", "0")]:
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Rude) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture(params=["refuses", "is silent", "hangs up"])
def lost(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of somebody who does not take part in a conversation."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if request.param == "hangs up":
            threading.Thread(target=hang_up, args=(listener,), daemon=True).start()
        if request.param == "refuses":
            listener.close()
        yield address


def hang_up(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def by_httpx(url: str) -> None:
    httpx.get(f"http://{url}", timeout=PATIENCE, trust_env=False, verify=False).raise_for_status()


def by_httpx2(url: str) -> None:
    httpx2.get(f"http://{url}", timeout=PATIENCE, trust_env=False, verify=False).raise_for_status()


def by_openai(url: str) -> None:
    address, _, query = url.partition("?")
    with openai.DefaultHttpxClient(trust_env=False, verify=False, timeout=PATIENCE) as http:
        client = openai.OpenAI(base_url=f"http://{address}", api_key="x", max_retries=0, http_client=http)
        client.models.list(extra_query=dict(parse_qsl(query)))


def by_urllib(url: str) -> None:
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{url}", timeout=PATIENCE)


def by_redis(address: str) -> None:
    with redis.Redis.from_url(f"redis://{address}", socket_timeout=PATIENCE, retry=None) as client:
        client.ping()


def by_psycopg(address: str) -> None:
    psycopg.connect(f"postgresql://{address}?connect_timeout=2")


def by_neo4j(address: str) -> None:
    with neo4j.GraphDatabase.driver(f"bolt://{address}") as driver:
        driver.verify_connectivity()


HTTP = [by_httpx, by_httpx2, by_openai, by_urllib]


def met(call: Callable[[], object]) -> Exception:
    """The exception that a handler making this call would end with."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - any of them is what we are after
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return error
    pytest.fail("nothing was raised")


@pytest.mark.parametrize("client", HTTP)
@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503, 529])
def test_an_answer_that_may_change_is_transient(client: Client, status: int, server: str) -> None:
    error = met(lambda: client(f"{server}/{status}/"))

    refusal = Refusal.RATE if status == 429 else None
    assert classify(error) == Class(TRANSIENT, f"http_{status}", None, refusal)


@pytest.mark.parametrize("client", HTTP)
@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_an_answer_that_will_not_change_is_permanent(client: Client, status: int, server: str) -> None:
    error = met(lambda: client(f"{server}/{status}/?retry-after=7"))

    assert classify(error) == Class(PERMANENT, f"http_{status}", None)


@pytest.mark.parametrize("client", HTTP)
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("7", 7.0), ("1.5", 1.5), ("-3", 0.0), ("1000000000", 3600.0),
        ("Wed, 21 Oct 2026 07:29:30 GMT", 90.0), ("Wed, 21 Oct 2026 07:00:00 GMT", 0.0),
        ("Wed, 21 Oct 2099 07:00:00 GMT", 3600.0),
    ],
)  # fmt: skip
def test_who_asks_for_time_gets_an_hour_at_most(
    client: Client, asked: str, seconds: float, server: str
) -> None:
    headers = urlencode({"Retry-After": asked, "Date": SENT})

    error = met(lambda: client(f"{server}/429/?{headers}"))

    assert classify(error).delay == seconds


@pytest.mark.parametrize(
    "asked",
    [
        "", "soon", "nan", "-nan", "7 seconds", "[7]", "Wed, 99 Oct 2026 07:29:30 GMT", "Wed, 21 Oct 99999 07:29:30 GMT",
        "Wed, 21 Oct 2026 07:29:30 -0000", "Wed, 21 Oct 2026 07:29:30 +99999999999",
    ],
)  # fmt: skip
def test_a_wish_that_makes_no_sense_leaves_a_delay_that_does(asked: str) -> None:
    headers = {"retry-after": asked, "date": SENT}
    response = httpx.Response(503, headers=headers, request=httpx.Request("GET", "http://example.com"))

    found = classify(met(response.raise_for_status))

    assert found.category is TRANSIENT
    assert found.delay is None or 0 <= found.delay <= LONGEST_RETRY_AFTER


@pytest.mark.parametrize("client", [*HTTP, by_redis])
def test_a_connection_that_is_refused_silent_or_reset_is_transient(client: Client, lost: str) -> None:
    assert classify(met(lambda: client(lost))).category is TRANSIENT


@pytest.mark.parametrize("client", [by_psycopg, by_neo4j])
@pytest.mark.parametrize("lost", ["refuses"], indirect=True)
def test_a_database_server_that_is_not_there_is_transient(client: Client, lost: str) -> None:
    assert classify(met(lambda: client(lost))).category is TRANSIENT


@pytest.mark.parametrize(
    "error",
    [
        redis_errors.BusyLoadingError("LOADING"), redis_errors.ReadOnlyError("READONLY"),
        redis_errors.ClusterDownError("CLUSTERDOWN"), redis_errors.MasterDownError("MASTERDOWN"),
        redis_errors.TryAgainError("TRYAGAIN"), redis_errors.OutOfMemoryError("OOM"), redis_errors.WatchError("changed"),
        *(psycopg.errors.lookup(state)("…") for state in ("08006", "40001", "40P01", "53100", "53300", "57P01", "57P03")),
        psycopg.InterfaceError("the connection is closed"), neo4j_errors.SessionExpired("…"),
        neo4j_errors.TransientError("…"), neo4j_errors.DatabaseUnavailable("…"), neo4j_errors.NotALeader("…"),
        apsw.BusyError("locked"), apsw.FullError("disk full"), apsw.IOError("…"), StoreUnavailable("…"),
        OSError(errno.ENOSPC, "disk full"), OSError(errno.EMFILE, "too many open files"), ConnectionResetError(),
        asyncio.IncompleteReadError(b"", 4), KeyError("x"), type("Unheard", (Exception,), {})("of"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_what_may_pass_or_nobody_knows_is_transient(error: Exception) -> None:
    assert classify(error) == Class(TRANSIENT, type(error).__name__, None)


@pytest.mark.parametrize(
    "error",
    [
        redis_errors.ResponseError("WRONGTYPE"), redis_errors.NoPermissionError("NOPERM"),
        *(psycopg.errors.lookup(state)("…") for state in ("22001", "23505", "42601", "42P01")),
        neo4j_errors.CypherSyntaxError("…"), neo4j_errors.ConstraintError("…"), neo4j_errors.AuthError("…"),
        httpx.UnsupportedProtocol("gopher"), httpx.InvalidURL("http://["), httpx2.UnsupportedProtocol("gopher"),
        NotImplementedError("not yet"), ModuleNotFoundError("no module"), UnreadableJob("…"), FileNotFoundError(errno.ENOENT, "no file"),
        PermissionError(errno.EACCES, "not yours"), IsADirectoryError(errno.EISDIR, "no file"),
        met(lambda: pydantic.TypeAdapter(int).validate_python("five")),
        met(lambda: msgspec.json.decode(b'"five"', type=int)), met(lambda: msgspec.json.decode(b"{")),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_what_is_wrong_with_the_request_itself_is_permanent(error: Exception) -> None:
    assert classify(error)[::2] == (PERMANENT, None)


@pytest.mark.parametrize("connect", [apsw.Connection, sqlite3.connect], ids=["apsw", "sqlite3"])
def test_a_damaged_sqlite_database_is_critical(connect: Callable[[str], Any], tmp_path: Path) -> None:
    file = tmp_path / "damaged.db"
    sqlite = sqlite3.connect(file)
    sqlite.executescript("CREATE TABLE t (x); INSERT INTO t SELECT hex(zeroblob(20000));")
    sqlite.close()
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))

    connection = connect(str(file))
    error = met(lambda: list(connection.execute("SELECT max(x) FROM t")))
    connection.close()

    assert str(error) == "database disk image is malformed"
    assert classify(error).category is CRITICAL


@pytest.mark.parametrize("state", ["XX001", "XX002"])
def test_a_damaged_postgres_is_critical(state: str) -> None:
    assert classify(psycopg.errors.lookup(state)("invalid page in block 7")).category is CRITICAL


@pytest.mark.anyio
async def test_a_damaged_store_is_critical_to_a_handler_that_enqueues(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(b"\xa5" * 8192)

    with pytest.raises(Exception, match="damaged") as caught:
        await open_store(f"sqlite:///{tmp_path}/jobs.db").__aenter__()

    assert classify(caught.value).category is CRITICAL


@pytest.mark.parametrize(
    "error",
    [
        met(lambda: socket.getaddrinfo("no-number", 80, flags=socket.AI_NUMERICHOST)),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        socket.herror(2, "Host name lookup failure"), socket.herror(1, "Unknown host"),
        ssl.SSLError(ssl.SSL_ERROR_SSL, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC]"),
        ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete"),
    ],
    ids=lambda error: f"{type(error).__name__} {error.errno}",
)  # fmt: skip
def test_the_numbers_of_name_lookups_and_tls_are_not_taken_for_those_of_files(error: OSError) -> None:
    assert classify(error).category is TRANSIENT


@pytest.mark.anyio
async def test_a_timeout_of_asyncio_is_transient() -> None:
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    assert classify(caught.value) == Class(TRANSIENT, "timeout", None)


@pytest.mark.parametrize(
    ("error", "category", "status"),
    [
        (TimeoutError("no answer"), TRANSIENT, Status.PENDING), (Transient("again"), TRANSIENT, Status.PENDING),
        (Permanent("no such entity"), PERMANENT, Status.FAILED), (Critical("broken"), CRITICAL, Status.FAILED),
    ],
)  # fmt: skip
def test_a_jobs_fate_follows_its_error(error: Exception, category: Category, status: Status) -> None:
    now = datetime.now(UTC)
    job = Job(queue="q", id="1", task="t", status=Status.PROCESSING, created_at=now, run_at=now, attempts=1)

    outcome = fate(job, failure(error))

    assert (outcome.failure and outcome.failure.category, outcome.status) == (category, status)


def test_a_verdict_of_the_handler_counts_as_it_is_given() -> None:
    assert classify(Permanent("x")) == Class(PERMANENT, "permanent", None)
    assert classify(Critical("x", code="index_broken")) == Class(CRITICAL, "index_broken", None)
    assert classify(Transient("x", delay=30)) == Class(TRANSIENT, "transient", 30)


def test_a_verdict_with_a_constructor_of_its_own_counts_as_well() -> None:
    class NoSuchEntity(Permanent):
        def __init__(self, name: str) -> None:
            self.name = name

    assert classify(NoSuchEntity("ann")) == Class(PERMANENT, "nosuchentity", None)


@pytest.mark.parametrize(
    "code",
    [5, None, "\ud800", "a\0b", f"password={CANARY}", "x" * 100_000],
    ids=["5", "None", "half a character", "NUL", "a secret", "very long"],
)
def test_a_verdict_with_a_senseless_code_can_be_stored_and_read(code: Any) -> None:
    stored = msgspec.json.encode(failure(Permanent("x", code=code)))

    read = msgspec.json.decode(stored, type=Failure)

    assert 1 <= len(read.code) <= 1000
    assert (CANARY in read.code, "\0" in read.code) == (False, False)


def test_an_exception_or_a_rule_that_raises_when_asked_is_transient() -> None:
    hostile = type("Hostile", (Exception,), {"response": property(lambda self: 1 / 0)})
    odd = type("Odd", (Exception,), {})
    register(odd, lambda error: error.nothing)

    found = [classify(hostile("x")), classify(odd("x"))]

    assert found == [Class(TRANSIENT, "Hostile", None), Class(TRANSIENT, "Odd", None)]


def test_a_class_of_ones_own_means_what_was_registered_for_it_or_its_nearest_ancestor() -> None:
    quota = type("Quota", (Exception,), {"wait": 60.0})
    exhausted = type("Exhausted", (quota,), {})
    unlimited = type("Unlimited", (quota,), {"wait": None})

    register(quota, lambda error: error.wait and Class(TRANSIENT, "quota", error.wait))
    register(exhausted, PERMANENT)

    assert classify(quota("x")) == Class(TRANSIENT, "quota", 60.0)
    assert classify(exhausted("x")) == Class(PERMANENT, "Exhausted", None)
    assert classify(unlimited("x")) == Class(TRANSIENT, "Unlimited", None)


def test_secrets_are_kept_out_of_message_and_stack(server: str) -> None:
    def call(password: str) -> None:
        try:
            by_httpx(f"ann:{password}@{server}/404/")
        except httpx.HTTPError as error:
            raise Permanent(f"Authorization: Bearer {password}\x1b[2J") from error

    found = failure(met(lambda: call(CANARY)), attempt=2, worker="w")

    assert (CANARY in found.message, CANARY in found.stack, "\x1b" in found.message + found.stack) == (
        False,
    ) * 3
    assert ("HTTPStatusError" in found.stack, found.attempt, found.worker) == (True, 2, "w")


def test_an_exception_that_cannot_describe_itself_is_still_reported() -> None:
    mute = type("Mute", (Exception,), {"__str__": lambda self: 1 / 0})

    found = failure(met(lambda: raising(mute())))

    assert found.message == "Mute (its message cannot be read: ZeroDivisionError)"
    assert "in raising" in found.stack


def test_of_a_message_of_100_megabytes_the_beginning_is_kept_and_of_its_stack_the_end() -> None:
    found = failure(met(lambda: raising(ValueError("begin" + "x" * 100_000_000 + "end"))))

    assert (len(found.message), len(found.stack)) == (MESSAGE_LIMIT, STACK_LIMIT)
    assert (found.message[:5], found.stack.strip()[-3:]) == ("begin", "end")


def raising(error: Exception) -> None:
    raise error
