"""Enqueue inside the caller's own transaction: the jobs exist if and only if it commits."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from support.guests import KINDS, Caller
from support.postgres import Postgres
from support.work import at_work, burst

from unstuck import ConfigError, SchemaError, Status, Task, UnknownJob, Unstuck, open_store
from unstuck.stores.postgres.wakeup import PostgresWakeup
from unstuck.testing import PostgresHarness

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shop(pg18: Postgres) -> Iterator[str]:
    """The URL of a database that has a table of orders, and jobs."""
    url = pg18.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (number integer PRIMARY KEY)")

    async def migrate() -> None:
        async with open_store(url) as store:
            await store.migrate()

    asyncio.run(migrate())
    yield url
    pg18.drop_database(url)


@pytest.fixture
async def app(shop: str) -> AsyncIterator[Unstuck]:
    with psycopg.connect(shop) as connection:
        connection.execute("TRUNCATE orders, unstuck.jobs, unstuck.spacing")
    async with Unstuck(shop) as app:
        yield app


@pytest.fixture
def confirm(app: Unstuck) -> Task[[int], str]:
    @app.task(queue="mail")
    async def confirm(number: int) -> str:
        return f"order {number} € confirmed"

    return confirm


@pytest.fixture(params=KINDS)
async def caller(request: pytest.FixtureRequest, shop: str) -> AsyncIterator[Caller]:
    async with KINDS[request.param](shop) as caller:
        yield caller


def orders(shop: str) -> list[int]:
    with psycopg.connect(shop) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM orders")]


async def pending(app: Unstuck) -> int:
    return (await (await app.jobs()).get_queue_status())["pending"]


async def test_jobs_appear_with_the_commit_and_run(
    app: Unstuck, shop: str, confirm: Task[[int], str], caller: Caller
) -> None:
    await caller.run("INSERT INTO public.orders VALUES (1)")
    later = confirm.options(run_at=datetime(2025, 2, 3, tzinfo=UTC), lane="a")
    one, other = await caller.enqueue_in(app, confirm.call(1), later.call(2))

    assert await pending(app) == 0
    with pytest.raises(UnknownJob):
        await one.status()
    await caller.commit()
    await burst(app)

    assert [one.created, await one.result(), await other.result()] == [
        True, "order 1 € confirmed", "order 2 € confirmed",
    ]  # fmt: skip
    assert (await other.job()).run_at == datetime(2025, 2, 3, tzinfo=UTC)
    assert orders(shop) == [1]


async def test_a_rollback_leaves_neither_row_nor_job(
    app: Unstuck, shop: str, confirm: Task[[int], str], caller: Caller
) -> None:
    await caller.run("INSERT INTO public.orders VALUES (1)")
    await caller.enqueue_in(app, confirm.call(1))
    await caller.rollback()

    assert await pending(app) == 0
    assert orders(shop) == []


@pytest.mark.slow
async def test_a_savepoint_rolled_back_takes_its_jobs_with_it(
    app: Unstuck, confirm: Task[[int], str], caller: Caller
) -> None:
    [kept] = await caller.enqueue_in(app, confirm.call(1))
    await caller.run("SAVEPOINT here")
    await caller.enqueue_in(app, confirm.call(2))
    await caller.run("ROLLBACK TO SAVEPOINT here")
    await caller.commit()

    assert await pending(app) == 1
    assert await kept.status() is Status.PENDING


@pytest.mark.slow
async def test_a_key_that_exists_does_not_harm_the_transaction(
    app: Unstuck, shop: str, confirm: Task[[int], str], caller: Caller
) -> None:
    await confirm.options(key="order").enqueue(1)
    same, changed, fresh = await caller.enqueue_in(
        app, confirm.options(key="order").call(1), confirm.options(key="order").call(2), confirm.call(3)
    )
    await caller.run("INSERT INTO public.orders VALUES (1)")
    await caller.commit()

    assert [(one.created, one.same_content) for one in (same, changed, fresh)] == [
        (False, True), (False, False), (True, True),
    ]  # fmt: skip
    assert orders(shop) == [1]


@pytest.mark.slow
async def test_jobs_are_spaced_out_by_calls_of_transactions_that_commit(
    app: Unstuck, confirm: Task[[int], str], caller: Caller
) -> None:
    debounced, throttled = confirm.options(key="a", debounce=60), confirm.options(key="b", throttle=60)
    await caller.enqueue_in(app, debounced.call(1), throttled.call(1))
    await caller.rollback()
    first = await debounced.enqueue(2)
    handles = await caller.enqueue_in(
        app, debounced.call(3), throttled.call(4), confirm.call(5), debounced.call(6), throttled.call(7)
    )
    assert (await first.job()).payload == {"number": 2}
    await caller.commit()

    assert [handle.created for handle in handles] == [False, True, True, False, False]
    assert (await first.job()).payload == {"number": 6}
    assert (await handles[1].job()).payload == {"number": 4}
    assert await pending(app) == 3


@pytest.mark.slow
async def test_again_starts_a_finished_job_over_if_the_transaction_commits(
    app: Unstuck, confirm: Task[[int], str], caller: Caller
) -> None:
    keyed = confirm.options(key="order", again=True)
    await keyed.enqueue(1)
    await burst(app)

    [undone] = await caller.enqueue_in(app, keyed.call(2))
    await caller.rollback()
    assert await undone.result() == "order 1 € confirmed"
    [done] = await caller.enqueue_in(app, keyed.call(3))
    await caller.commit()
    await burst(app)

    assert done.created
    assert await done.result() == "order 3 € confirmed"


async def test_an_idle_worker_is_woken_by_the_commit(
    app: Unstuck, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the ring alone: it does not look by itself."""
    ran, listening = asyncio.Event(), asyncio.Event()

    async def only_listen(
        wakeup: PostgresWakeup, queues: object, notified: asyncio.Event, end: float
    ) -> None:
        await wakeup._listening.wait()
        listening.set()
        await notified.wait()

    monkeypatch.setattr(PostgresWakeup, "_watch", only_listen)

    @app.task(name="confirm", queue="mail")
    async def confirm() -> None:
        ran.set()

    async with at_work(app), await psycopg.AsyncConnection.connect(shop) as connection:
        await asyncio.wait_for(listening.wait(), 20)
        await app.enqueue_in(connection, [confirm.call()])
        await asyncio.sleep(0.1)
        assert not ran.is_set()
        await connection.commit()
        await asyncio.wait_for(ran.wait(), 20)


async def test_what_is_rolled_back_wakes_nobody(app: Unstuck, shop: str) -> None:
    task: Task[[], None] = app.task(name="t", queue="mail")(lambda: None)
    heard: list[str] = []
    listener = await asyncpg.connect(shop)
    await listener.add_listener("unstuck.unstuck", lambda *told: heard.append(told[-1]))
    async with await psycopg.AsyncConnection.connect(shop) as connection:
        await app.enqueue_in(connection, [task.call()])
        await connection.rollback()
        await asyncio.sleep(0.02)  # rings come at most every 10 ms
        await app.enqueue_in(connection, [task.call() for _ in range(3)])
        await app.enqueue_in(connection, [task.call()])
        await connection.commit()
        await listener.fetch("SELECT")
    await listener.close()

    assert heard == ["mail"]


async def test_all_stores_of_a_process_notify_at_most_once_in_ten_milliseconds(
    app: Unstuck, shop: str
) -> None:
    task: Task[[], None] = app.task(name="t", queue="mail")(lambda: None)
    heard: list[str] = []
    listener = await asyncpg.connect(shop)
    await listener.add_listener("unstuck.unstuck", lambda *told: heard.append(told[-1]))
    await app.store()
    with psycopg.connect(shop, autocommit=True) as one, psycopg.connect(shop) as other:
        app.enqueue_in_sync(one, [task.call()])  # opens the store, which takes a while
        await asyncio.sleep(0.02)
        began = time.monotonic()
        for _ in range(20):
            app.enqueue_in_sync(one, [task.call()])
            app.enqueue_in_sync(other, [task.call()])
            other.commit()
        took = time.monotonic() - began
    await listener.fetch("SELECT")
    await listener.close()

    assert 2 <= len(heard) <= 2 + took / 0.01


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
async def test_a_connection_in_autocommit_mode_just_commits(
    app: Unstuck, confirm: Task[[int], str], shop: str, kind: str
) -> None:
    keyed = confirm.options(key="order", again=True)
    connection: Any
    if kind == "psycopg":
        connection = await psycopg.AsyncConnection.connect(shop, autocommit=True)
    else:
        connection = await asyncpg.connect(shop)
    await app.enqueue_in(connection, [confirm.call(1)])
    await app.enqueue_in(connection, [keyed.call(2)])
    await burst(app)
    [again] = await app.enqueue_in(connection, [keyed.call(3)])
    await burst(app)
    await connection.close()

    assert await again.result() == "order 3 € confirmed"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_key_that_exists_is_no_harm_at_any_isolation_level(
    app: Unstuck, confirm: Task[[int], str], shop: str, level: str
) -> None:
    keyed = confirm.options(key="order")
    await keyed.enqueue(1)
    async with await psycopg.AsyncConnection.connect(shop) as connection:
        await connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        [met, added] = await app.enqueue_in(connection, [keyed.call(1), confirm.call(2)])

    assert (met.created, added.created) == (False, True)
    assert await pending(app) == 2


async def test_errors_are_those_of_the_caller_s_driver(
    app: Unstuck, confirm: Task[[int], str], shop: str
) -> None:
    keyed = confirm.options(key="order")
    async with await psycopg.AsyncConnection.connect(shop) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.execute("SELECT 1")  # from here on it sees nothing new
        await keyed.enqueue(1)
        with pytest.raises(psycopg.errors.SerializationFailure):
            await app.enqueue_in(connection, [keyed.call(1)])
        await connection.rollback()
        [met] = await app.enqueue_in(connection, [keyed.call(1)])

    assert not met.created


async def test_on_the_older_server_too(pg15: Postgres) -> None:
    async with PostgresHarness(pg15.url()) as harness, Unstuck(harness.url) as app:
        task: Task[[], None] = app.task(name="t")(lambda: None)
        for kind in KINDS.values():
            async with kind(pg15.url()) as caller:
                keyed = task.options(key="one", again=True)
                handles = await caller.enqueue_in(app, task.call(), keyed.call())
                await caller.commit()
                await burst(app)

                assert [(one.created, await one.status()) for one in handles] == [(True, "completed")] * 2


async def test_a_connection_of_the_wrong_kind_is_refused_with_the_right_call(
    app: Unstuck, confirm: Task[[int], str], shop: str
) -> None:
    with (
        psycopg.connect(shop) as connection,
        pytest.raises(
            ConfigError, match=r"psycopg\.Connection is not asynchronous: use app\.enqueue_in_sync"
        ),
    ):
        await app.enqueue_in(connection, [confirm.call(1)])
    async with await psycopg.AsyncConnection.connect(shop) as asynchronous:
        with pytest.raises(
            ConfigError, match=r"AsyncConnection is asynchronous: use await app\.enqueue_in\("
        ):
            app.enqueue_in_sync(asynchronous, [confirm.call(1)])
    for refused in (shop, None, sqlalchemy.create_engine("sqlite://")):
        with pytest.raises(
            ConfigError, match="AsyncConnection or AsyncCursor of psycopg, a Connection of asyncpg"
        ):
            await app.enqueue_in(refused, [])
        with pytest.raises(
            ConfigError, match=r"is not a connection that can be used: .* a connection of Django"
        ):
            app.enqueue_in_sync(refused, [confirm.call(1)])


async def test_a_connection_to_something_else_is_refused(
    app: Unstuck, confirm: Task[[int], str], pg18: Postgres
) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    told = "of SQLAlchemy leads to sqlite: jobs can only join one to PostgreSQL"
    with engine.connect() as connection, pytest.raises(ConfigError, match=told):
        app.enqueue_in_sync(connection, [confirm.call(1)])
    engine.dispose()
    elsewhere = pg18.create_database()
    for kind in KINDS.values():
        async with kind(elsewhere) as caller:
            with pytest.raises(
                SchemaError,
                match=r"has no jobs in schema 'unstuck': use a connection to the database that the store is in",
            ):
                await caller.enqueue_in(app, confirm.call(1))
    pg18.drop_database(elsewhere)


async def test_a_store_that_cannot_join_names_which_can(tmp_path: Any, shop: str) -> None:
    async with Unstuck(f"sqlite:///{tmp_path}/jobs.db") as app:
        task: Task[[], None] = app.task(name="t")(lambda: None)
        with psycopg.connect(shop) as connection:
            with pytest.raises(
                ConfigError, match="cannot join a transaction of yours: only one on PostgreSQL can"
            ):
                app.enqueue_in_sync(connection, [task.call()])
            with pytest.raises(
                ConfigError, match="cannot join a transaction of yours: only one on PostgreSQL can"
            ):
                await app.enqueue_in(connection, [task.call()])


async def test_nothing_to_enqueue_is_no_query(app: Unstuck, shop: str) -> None:
    async with await psycopg.AsyncConnection.connect(shop) as connection:
        assert await app.enqueue_in(connection, []) == []
        assert connection.info.transaction_status.name == "IDLE"
