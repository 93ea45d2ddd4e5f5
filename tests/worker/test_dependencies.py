"""Dependencies of handlers: when each is made, where, for whom, and when it is left."""

import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from support.dependencies import Book
from support.work import burst

from unstuck import (
    Depends,
    JobFailed,
    Permanent,
    Rate,
    Status,
    Transient,
    Unstuck,
    UnstuckError,
    current_job,
    current_jobs,
)

pytestmark = pytest.mark.anyio

KINDS = ["plain", "coroutine", "generator", "async generator", "context"]
LEFT = ["generator", "async generator", "context"]


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("handler", ["async", "thread", "timed", "batch"])
async def test_a_handler_gets_what_its_dependency_makes(
    app: Unstuck, book: Book, kind: str, handler: str
) -> None:
    database: Any = Annotated[str, Depends(book.make(kind))]

    async def on_loop(to: str, db: database, times: int = 1) -> str:
        book.lines.append("handler")
        return f"{to} {times} {db}"

    def in_thread(to: str, db: database, times: int = 1) -> str:
        book.lines.append("handler")
        return f"{to} {times} {db}"

    def together(to: list[str], db: database) -> list[str]:
        book.lines.append("handler")
        return [f"{each} 1 {db}" for each in to]

    make: Any = app
    task: Any = {
        "async": lambda: make.task(on_loop),
        "thread": lambda: make.task(in_thread),
        "timed": lambda: make.task(timeout=60)(on_loop),
        "batch": lambda: make.batch(10)(together),
    }[handler]()
    handle = await task.enqueue("ann")
    await burst(app)

    assert (await handle.job()).payload.get("db") is None
    assert await handle.result(timeout=0) == "ann 1 db"
    assert book.lines == ["make db", "handler", *(["leave db"] if kind in LEFT else [])]


async def test_a_default_value_names_a_dependency_too(app: Unstuck) -> None:
    def session() -> str:
        return "session"

    @app.task
    async def send(to: str, db: str = Depends(session)) -> str:
        return f"{to} {db}"

    handle = await send.enqueue("ann")
    await burst(app)

    assert await handle.result(timeout=0) == "ann session"


async def test_dependencies_of_dependencies_are_made_once_and_left_in_turn(app: Unstuck, book: Book) -> None:
    pool = book.make("async generator", "pool")

    def session(pool: str = Depends(pool), size: int = 3) -> Iterator[str]:
        book.lines.append(f"make session of {pool} {size}")
        yield "session"
        book.lines.append("leave session")

    async def users(db: str = Depends(session), pool: str = Depends(pool)) -> str:
        book.lines.append("make users")
        return f"users of {db} and {pool}"

    @app.task
    async def send(to: str, users: str = Depends(users), db: str = Depends(session)) -> str:
        return f"{users}, {db}"

    handles = [await send.enqueue(to) for to in ("ann", "bob")]
    await burst(app, concurrency=1)

    assert {await handle.result(timeout=0) for handle in handles} == {"users of session and pool, session"}
    once = ["make pool", "make session of pool 3", "make users", "leave session", "leave pool"]
    assert book.lines == once * 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dependency_of_the_worker_is_made_once_and_left_after_its_last_job(
    app: Unstuck, book: Book, kind: str
) -> None:
    pool = book.make(kind, "pool")

    async def session(pool: str = Depends(pool, scope="worker")) -> AsyncIterator[str]:
        yield f"session of {pool}"
        book.lines.append("leave session")

    @app.task
    async def on_loop(db: str = Depends(session)) -> str:
        return db

    @app.task
    def in_thread(pool: str = Depends(pool, scope="worker")) -> str:
        return pool

    handles = [await task.enqueue() for task in (on_loop, in_thread) for _ in range(5)]
    await burst(app, concurrency=3)

    assert {await handle.result(timeout=0) for handle in handles} == {"session of pool", "pool"}
    left = ["leave pool"] if kind in LEFT else []
    assert book.lines == ["make pool", *["leave session"] * 5, *left]


async def test_a_worker_makes_nothing_that_no_job_needs(app: Unstuck, book: Book) -> None:
    pool = book.make("generator", "pool")

    @app.task
    async def needs(pool: str = Depends(pool, scope="worker")) -> None: ...

    @app.task
    async def other() -> None: ...

    await other.enqueue()
    await burst(app)

    assert book.lines == []


async def test_a_dependency_of_the_worker_that_fails_is_tried_again_by_the_next_job(app: Unstuck) -> None:
    tries: list[int] = []

    def pool() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise SystemExit("no password for the pool")
        return "pool"

    @app.task(retry=1)
    async def send(pool: str = Depends(pool, scope="worker")) -> str:
        return pool

    first, second = await send.enqueue(), await send.enqueue()
    await burst(app, concurrency=1)

    assert {await first.status(), await second.status()} == {Status.FAILED, Status.COMPLETED}


async def test_what_blocks_runs_in_one_thread_together_with_a_def_handler(
    app: Unstuck, tmp_path: Path
) -> None:
    """A connection to SQLite refuses any other thread."""
    loop_thread = threading.get_ident()

    def connection() -> Iterator[sqlite3.Connection]:
        opened = sqlite3.connect(tmp_path / "shop.db")
        yield opened
        opened.commit()
        opened.close()

    def table(db: sqlite3.Connection = Depends(connection)) -> str:
        db.execute("CREATE TABLE IF NOT EXISTS mail (sent_to)")
        return "mail"

    @app.task
    def send(
        to: str,
        db: sqlite3.Connection = Depends(connection),
        table: str = Depends(table),
    ) -> bool:
        db.execute(f"INSERT INTO {table} VALUES (?)", (to,))
        return threading.get_ident() == loop_thread

    @app.task
    async def look(where: int = Depends(threading.get_ident)) -> bool:
        return where == loop_thread

    handles = [await send.enqueue("ann"), await send.enqueue("bob"), await look.enqueue()]
    await burst(app, concurrency=1)

    assert [await handle.result(timeout=0) for handle in handles] == [False] * 3
    with sqlite3.connect(tmp_path / "shop.db") as db:
        assert sorted(db.execute("SELECT sent_to FROM mail")) == [("ann",), ("bob",)]
    db.close()


async def test_a_dependency_may_ask_for_the_job_but_not_one_of_the_worker(app: Unstuck) -> None:
    def customer() -> str:
        return f"customer {current_job().job.payload['to']}"

    async def everybody() -> str:
        return current_job().id

    @app.task
    async def send(to: str, who: str = Depends(customer)) -> str:
        return who

    @app.task(retry=1)
    async def wrong(who: str = Depends(everybody, scope="worker")) -> str:
        return who

    handle, other = await send.enqueue("ann"), await wrong.enqueue()
    await burst(app)

    assert await handle.result(timeout=0) == "customer ann"
    with pytest.raises(JobFailed, match="no job runs here"):
        await other.result(timeout=0)


async def test_an_async_function_behind_a_lambda_is_awaited(app: Unstuck) -> None:
    async def connected(where: str) -> str:
        return f"connected to {where}"

    @app.task
    async def send(
        db: str = Depends(lambda: connected("shop")),
        pool: str = Depends(lambda: connected("all"), scope="worker"),
    ) -> str:
        return f"{db}, {pool}"

    handle = await send.enqueue()
    await burst(app)

    assert await handle.result(timeout=0) == "connected to shop, connected to all"


async def test_a_batch_has_its_dependencies_once(app: Unstuck, book: Book) -> None:
    session = book.make("async generator")

    def size() -> int:
        return len(current_jobs())

    @app.batch(10)
    async def embed(texts: list[str], db: str = Depends(session), size: int = Depends(size)) -> list[str]:
        if "bad" in texts:
            raise Permanent("one of them is bad")
        return [f"{text} {size} {db}" for text in texts]

    handles = await app.enqueue_many([embed.call(text) for text in ("a", "b", "c")])
    await burst(app)
    assert [await handle.result(timeout=0) for handle in handles] == ["a 3 db", "b 3 db", "c 3 db"]
    assert book.lines == ["make db", "leave db"]

    await app.enqueue_many([embed.call(text) for text in ("d", "bad")])  # again, one by one
    await burst(app)
    assert book.lines.count("make db") == 1 + 1 + 2


async def test_middleware_is_outside_of_dependencies_and_a_rate_inside(app: Unstuck, book: Book) -> None:
    session = book.make("async generator")

    @app.middleware
    async def around(job: Any, call_next: Callable[[], Any]) -> Any:
        book.lines.append("before")
        try:
            return await call_next()
        finally:
            book.lines.append("after")

    @app.task(rate=Rate(100, per=1))
    def send(db: str = Depends(session)) -> str:
        return db

    handle = await send.enqueue()
    await burst(app)

    assert await handle.result(timeout=0) == "db"
    assert book.lines == ["before", "make db", "leave db", "after"]


async def test_an_error_of_a_dependency_is_classified_as_one_of_the_handler(app: Unstuck) -> None:
    async def session() -> str:
        raise Transient("busy", delay=3600)

    @app.task(retry=2)
    async def send(db: str = Depends(session)) -> None: ...

    handle = await send.enqueue()
    await burst(app)

    assert ((await handle.job()).status, (await handle.job()).attempts) == (Status.PENDING, 1)


async def test_a_dependency_is_not_for_code_that_calls_the_task(app: Unstuck) -> None:
    @app.task
    async def send(to: str, db: str = Depends(lambda: "db")) -> str:
        return db

    assert await send("ann", "a database") == "a database"
    with pytest.raises(TypeError, match=r"send\(\) is called directly, where no worker fills 'db': pass it"):
        await send("ann")
    with pytest.raises(UnstuckError, match="unexpected keyword argument 'db'"):
        await send.enqueue("ann", db="mine")
