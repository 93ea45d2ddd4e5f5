"""Jobs inside a test that has no event loop of its own, and inside of transactions that no test can join."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import sqlalchemy
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool

from unstuck import (
    ConfigError,
    Handle,
    Retry,
    Status,
    SyncHandle,
    Transient,
    Unstuck,
    UnstuckError,
    current_job,
)
from unstuck.testing import SyncInline, inline

app = Unstuck("postgresql://nobody@nowhere.invalid/nothing")
entered: list[str] = []


@app.lifespan
@asynccontextmanager
async def pooled() -> AsyncIterator[None]:
    entered.append("in")
    yield
    entered.append("out")


@app.task(queue="mail")
async def confirm(number: int) -> str:
    return f"order {number} is confirmed"


@app.task(retry=Retry(2, backoff=(30.0,)))
def charge(cents: int) -> int:
    if current_job().attempt == 1:
        raise Transient("the bank is busy")
    confirm.enqueue_sync(cents)  # from the thread of a handler
    return cents


@app.task
async def careless(number: int) -> str:
    with pytest.warns(RuntimeWarning, match="holds up everything"):
        return confirm.enqueue_sync(number).id  # on the loop, which the job does not need


@app.task(isolate=True)
def apart() -> str:
    return confirm.enqueue_sync(7).id


@pytest.fixture
def jobs() -> Iterator[SyncInline]:
    with inline(app) as jobs:
        yield jobs


def test_a_test_without_an_event_loop_runs_jobs(jobs: SyncInline) -> None:
    entered.clear()
    handle, later = charge.enqueue_sync(995), confirm.options(delay=3600).enqueue_sync(1)

    jobs.run()
    assert handle.status() is Status.PENDING
    jobs.run(ahead=60)

    assert (handle.result(timeout=0), later.status()) == (995, Status.PENDING)
    assert jobs.jobs.get_queue_status() | {"pending": 1, "completed": 2} == jobs.jobs.get_queue_status()
    assert entered[:4] == ["in", "out"] * 2


@pytest.mark.parametrize("task", [careless, apart])
def test_handlers_of_all_kinds_enqueue_there(jobs: SyncInline, task: object) -> None:
    handle = (careless.enqueue_sync(5)) if task is careless else apart.enqueue_sync()

    jobs.run()

    assert jobs.jobs.get(handle.result(timeout=0)).status is Status.COMPLETED


def test_each_block_has_an_empty_store_and_leaves_the_apps_own(jobs: SyncInline) -> None:
    inside = app.url
    confirm.enqueue_sync(1)

    with inline(app) as others:
        assert others.jobs.counts() == []

    assert app.url == inside
    assert inside.startswith("sqlite:///")
    assert Path(inside.removeprefix("sqlite:///")).exists()


def test_after_the_block_the_app_is_as_it_was(tmp_path: Path) -> None:
    own = Unstuck(f"sqlite:///{tmp_path}/own.db")
    folders: list[Path] = []

    def fail() -> None:
        with inline(own):
            folders.append(Path(own.url.removeprefix("sqlite:///")).parent)
            assert folders[0].exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert own.url == f"sqlite:///{tmp_path}/own.db"
    assert not folders[0].exists()
    with pytest.raises(ConfigError, match="cannot join a transaction of yours"):
        own.enqueue_in_sync(object(), [])


@pytest.mark.anyio
async def test_where_an_event_loop_runs_it_is_entered_with_async_with() -> None:
    with (
        pytest.raises(UnstuckError, match=r"an event loop runs here: write async with inline\(app\)"),
        inline(app),
    ):
        pass


@pytest.mark.anyio
async def test_jobs_of_a_transaction_are_there_at_once() -> None:
    async with inline(app) as jobs:
        [handle] = await app.enqueue_in(object(), [confirm.call(1)])
        with closing(sqlite3.connect(":memory:")) as connection:
            [other] = app.enqueue_in_sync(connection, [confirm.call(2)])
        await jobs.run()

        assert isinstance(handle, Handle)
        assert isinstance(other, SyncHandle)
        assert await handle.result(timeout=0) == "order 1 is confirmed"
        assert (await jobs.jobs.get(other.id)).status is Status.COMPLETED


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A web application on SQLite, whose lifespan opens and closes the app."""
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    Base.metadata.create_all(engine)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with app:
            yield

    web = FastAPI(lifespan=lifespan)

    @web.post("/orders")
    def add_order(email: str) -> str:
        with Session(engine) as session, session.begin():
            session.add(order := Order(email=email))
            session.flush()
            if "@" not in email:
                raise HTTPException(400)
            [job] = app.enqueue_in_sync(session, [confirm.call(order.number)])
        return job.id

    @web.post("/reminders")
    async def remind(number: int) -> str:
        return (await confirm.enqueue(number)).id

    with TestClient(web) as client:
        yield client
    engine.dispose()


def test_a_web_application_is_tested_without_a_server(jobs: SyncInline, client: TestClient) -> None:
    added = client.post("/orders", params={"email": "ann@example.org"}).json()
    reminded = client.post("/reminders", params={"number": 9}).json()
    assert client.post("/orders", params={"email": "nobody"}).status_code == 400

    jobs.run()

    assert jobs.jobs.get(added).result == "order 1 is confirmed"
    assert jobs.jobs.get(reminded).result == "order 9 is confirmed"
    assert jobs.jobs.get_queue_status()["completed"] == 2
