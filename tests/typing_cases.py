"""What the type checker must see of a task; checked together with the rest of the tests, never run."""

from dataclasses import dataclass
from typing import assert_type

from psycopg import AsyncConnection, Connection

from unstuck import Call, Handle, SyncHandle, Task, Unstuck

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


async def the_handles_have_the_results_of_their_handlers() -> None:
    assert_type(await post.enqueue(Letter("ann"), copies=2), Handle[list[str]])
    assert_type(await (await post.enqueue(Letter("ann"))).result(timeout=5), list[str])
    assert_type(await (await add.enqueue(1, b=2)).result(), int)
    assert_type(add.enqueue_sync(1, 2), SyncHandle[int])
    assert_type(add.enqueue_sync(1, 2).result(), int)
    assert_type(post.enqueue_sync(Letter("ann")).result(1.5), list[str])
    assert_type(await tell.enqueue("ann", urgent=True), Handle[None])


async def options_keep_the_types() -> None:
    assert_type(await add.options(key="k", priority=3).enqueue(1, 2), Handle[int])
    assert_type(add.options(delay=5).enqueue_sync(1, 2).result(), int)
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
