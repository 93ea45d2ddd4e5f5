"""What the type checker must see of a task; checked together with the rest of the tests, never run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, ParamSpec, TypeVar, assert_type

from psycopg import AsyncConnection, Connection

from unstuck import Call, Depends, Exponential, Failure, Handle, Retry, SyncHandle, Task, Unstuck

app = Unstuck("sqlite:///:memory:")


@dataclass
class Letter:
    to: str


@app.task
async def post(letter: Letter, copies: int = 1) -> list[str]:
    return [letter.to] * copies


@app.task(queue="sums", retry=5)
def add(a: int, b: int) -> int:
    return a + b


@app.task(queue="mail")
async def tell(to: str, *, urgent: bool = False) -> None:
    """Has no result."""


@app.batch(50, queue="embeddings")
async def embed(texts: list[str]) -> list[int | Exception]:
    return [len(text) for text in texts]


@app.batch(50, queue="sizes")
def sizes(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@app.batch(50, queue="lengths")
async def lengths(texts: list[str]) -> list[float]:
    return [float(len(text)) for text in texts]


@app.batch(50, queue="pairs")
async def pairs(texts: list[str]) -> Sequence[tuple[int, int]]:
    return tuple((0, len(text)) for text in texts)


class Session:
    """Opened for each job."""


async def session() -> AsyncIterator[Session]:
    yield Session()


async def customers(db: Session = Depends(session)) -> list[str]:
    return []


def limit() -> int:
    return 5


@contextmanager
def transaction() -> Iterator[Session]:
    yield Session()


@app.task(queue="bills")
async def bill(
    to: str,
    cents: int = 0,
    *,
    db: Session = Depends(session),
    found: list[str] = Depends(customers, scope="worker"),
    most: int = Depends(limit),
    changes: Session = Depends(transaction),
) -> float:
    return cents / 100


@app.task(queue="named")
async def named(
    to: str, db: Annotated[Session, Depends(session)], most: Annotated[int, Depends(limit)] = 5
) -> int:
    return most


@app.batch(50, queue="rows")
async def rows(texts: list[str], db: Session = Depends(session)) -> list[int]:
    return [len(text) for text in texts]


P = ParamSpec("P")
R = TypeVar("R")


def watched(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """A decorator that says no more than that the result is awaited."""
    return function


@app.task(queue="watched")
@watched
async def weigh(letter: Letter) -> float:
    return 0.5


async def the_handles_have_the_results_of_their_handlers() -> None:
    assert_type(await post.enqueue(Letter("ann"), copies=2), Handle[list[str]])
    assert_type(await (await post.enqueue(Letter("ann"))).result(timeout=5), list[str])
    assert_type(await (await add.enqueue(1, b=2)).result(), int)
    assert_type(add.enqueue_sync(1, 2), SyncHandle[int])
    assert_type(add.enqueue_sync(1, 2).result(), int)
    assert_type(post.enqueue_sync(Letter("ann")).result(1.5), list[str])
    assert_type(await tell.enqueue("ann", urgent=True), Handle[None])


async def a_task_that_is_called_directly_is_its_function() -> None:
    assert_type(asyncio.create_task(post(Letter("ann"), copies=2)), asyncio.Task[list[str]])
    assert_type(await post(Letter("ann")), list[str])
    assert_type(add(1, b=2), int)
    assert_type(add.options(priority=3)(1, 2), int)
    await tell("ann", urgent=True)
    assert_type(await weigh(Letter("ann")), float)
    assert_type(await embed(["a", "b"]), list[int | Exception])
    assert_type(sizes(["a", "b"]), list[int])
    assert_type(await lengths(["a", "b"]), list[float])
    assert_type(asyncio.create_task(pairs(["a"])), asyncio.Task[Sequence[tuple[int, int] | Exception]])
    assert_type(await embed.enqueue("a"), Handle[int])
    assert_type(await sizes.enqueue("a"), Handle[int])
    assert_type(await lengths.enqueue("a"), Handle[float])
    assert_type(await pairs.enqueue("a"), Handle[tuple[int, int]])
    assert_type(await weigh.enqueue(Letter("ann")), Handle[float])


async def what_a_worker_fills_is_left_out() -> None:
    assert_type(await bill.enqueue("ann"), Handle[float])
    assert_type(await bill.options(delay=5).enqueue("ann", cents=5), Handle[float])
    assert_type(await bill("ann", db=Session(), found=[], most=1, changes=Session()), float)
    assert_type(await rows.enqueue("a"), Handle[int])
    assert_type(await named.enqueue("ann", Session()), Handle[int])  # it asks for what has no default


@app.task
async def invoice(pages: int, *, urgent: bool = False) -> None: ...


@app.task
async def apologise(job_id: str, task: str, failure: Failure) -> None: ...


@app.task(
    queue="print", expires=timedelta(hours=1), on_success=invoice, on_failure=apologise.options(priority=9)
)
async def printed(text: str) -> int:
    return len(text)


async def a_task_with_followers_keeps_its_types() -> None:
    assert_type(await printed.options(expires=60).enqueue("text"), Handle[int])
    assert_type(await printed("text"), int)


async def options_keep_the_types() -> None:
    assert_type(await add.options(key="k", priority=3).enqueue(1, 2), Handle[int])
    assert_type(add.options(delay=5).enqueue_sync(1, 2).result(), int)
    assert_type(await add.options(queue="mail", retry=1, timeout=5).enqueue(1, 2), Handle[int])
    assert_type(add.options(retry=Retry(5, backoff=Exponential())).call(1, 2), Call[int])
    assert_type(post.options(delay=5).call(Letter("ann")), Call[list[str]])


async def many_jobs_keep_their_type() -> None:
    assert_type(add.call(1, 2), Call[int])
    assert_type(await app.enqueue_many([add.call(1, 2), add.call(3, 4)]), list[Handle[int]])
    assert_type(app.enqueue_many_sync([add.call(1, 2)]), list[SyncHandle[int]])
    mixed: list[Call[object]] = [add.call(1, 2), tell.call("ann")]
    assert_type(await app.enqueue_many(mixed), list[Handle[object]])


async def jobs_of_your_own_transaction_keep_their_type(
    connection: AsyncConnection, other: Connection
) -> None:
    assert_type(await app.enqueue_in(connection, [add.call(1, 2)]), list[Handle[int]])
    assert_type(app.enqueue_in_sync(other, [post.call(Letter("ann"))]), list[SyncHandle[list[str]]])


def a_task_can_be_named_by_its_parameters(task: Task[[int, int], int]) -> int:
    return task.enqueue_sync(1, 2).result()


a_task_can_be_named_by_its_parameters(Unstuck("sqlite:///:memory:").task(lambda a, b: a * b))
