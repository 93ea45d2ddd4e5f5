"""Parameters that workers fill: what is refused when a task is registered, how a task shows them, and tests with fakes."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import pytest
from msgspec import Raw
from support.refusal import refusal
from support.work import burst

from unstuck import ConfigError, Depends, JobFailed, PayloadError, Unstuck
from unstuck.testing import inline

pytestmark = pytest.mark.anyio


async def session() -> AsyncIterator[str]:
    yield "session"


def first(other: "Annotated[int, Depends(second)]") -> int:
    return other


def second(other: "Annotated[int, Depends(third)]") -> int:
    return other


def third(other: "Annotated[int, Depends(first)]") -> int:
    return other


def table(name: str, db: Annotated[str, Depends(session)]) -> str:
    return name + db


def pool(db: Annotated[str, Depends(session)]) -> str:
    return db


def by_position(db: Annotated[str, Depends(session)], /) -> str:
    return db


def size(limit: int = 5, *_: Any, **__: Any) -> int:
    return limit


@pytest.fixture
def bare() -> Unstuck:
    """An app whose store nobody opens."""
    return Unstuck("sqlite:///:memory:")


class Settings:
    """Made without arguments."""

    def __init__(self, limit: Annotated[int, Depends(size)], shop: str = "bakery") -> None:
        self.text = f"{shop} {limit}"


class Factory:
    async def __call__(self) -> str:
        return "made"

    def method(self) -> Iterator[str]:
        yield "by a method"


def task_of(dependency: Any, **options: Any) -> Callable[..., Any]:
    marked = Depends(dependency, **options)

    async def send(to: str, db: Annotated[Any, marked]) -> str:
        return f"{to} {db}"

    return send


@pytest.mark.parametrize(
    ("dependency", "options", "told"),
    [
        (first, {}, "task 'send': parameter 'db': dependencies need each other in a circle: first -> second -> third -> first"),
        (table, {}, "task 'send': parameter 'db': dependency 'table' takes 'name', which nothing fills: give it a default or Depends(…); the arguments of a job are in current_job().job.payload"),
        (pool, {"scope": "worker"}, "task 'send': parameter 'db': dependency 'pool' lasts as long as the worker and needs 'session', which ends with a job: give both the same scope"),
        (by_position, {}, "task 'send': parameter 'db': dependency 'by_position' takes 'db' by position only: drop the /"),
        (session, {"scope": "app"}, "scope of dependency 'session' is 'app': it must be 'job' or 'worker'"),
        ("session", {}, "Depends() has 'session': give the function itself, without calling it, as in Depends(session)"),
    ],
)  # fmt: skip
def test_a_dependency_that_cannot_be_filled_is_refused_when_its_task_is_registered(
    bare: Unstuck, dependency: Any, options: Any, told: str
) -> None:
    assert refusal(lambda: bare.task(task_of(dependency, **options))) == told
    assert bare.tasks == {}


def test_a_dependency_is_given_without_calling_it() -> None:
    wrong: Any = session()

    assert "give the function itself, without calling it" in refusal(lambda: Depends(wrong))


def test_an_annotation_that_nobody_knows_is_named_with_its_dependency(bare: Unstuck) -> None:
    def odd(db: "Nothing") -> str:  # type: ignore[name-defined] # noqa: F821
        return ""

    told = refusal(lambda: bare.task(task_of(odd)))
    assert told.startswith("task 'send': parameter 'db': dependency 'test_an_annotation")
    assert "an annotation cannot be used (name 'Nothing' is not defined)" in told


async def test_anything_that_can_be_called_is_a_dependency(app: Unstuck) -> None:
    kinds: dict[str, Any] = {
        "class": Settings, "object": Factory(), "method": Factory().method, "partial": partial(size, 7), "built in": dict,
        "lambda": lambda: 3, "context": asynccontextmanager(session),
    }  # fmt: skip
    handles = {name: await app.task(name=name)(task_of(kind)).enqueue("ann") for name, kind in kinds.items()}
    await burst(app)

    found = {name: (await handle.job()).result for name, handle in handles.items()}
    assert found.pop("class").startswith("ann <")
    assert found == {
        "object": "ann made", "method": "ann by a method", "partial": "ann 7", "built in": "ann {}", "lambda": "ann 3",
        "context": "ann session",
    }  # fmt: skip


def test_a_task_shows_what_a_job_takes_and_what_a_call_takes(bare: Unstuck) -> None:
    @bare.task
    async def send(to: str, db: str = Depends(session), times: int = 1) -> str:
        """Send it."""
        return to

    assert (
        str(inspect.signature(send.enqueue)) == "(to: str, times: int = 1) -> unstuck.app.handle.Handle[str]"
    )
    assert list(inspect.signature(send).parameters) == ["to", "db", "times"]
    assert send.call("ann").job.payload == Raw(b'{"to":"ann","times":1}')
    with pytest.raises(PayloadError, match=r"unexpected keyword argument 'db'; it takes \(to: str, times"):
        send.call("ann", db="mine")


def test_a_batch_takes_one_list_beside_its_dependencies(bare: Unstuck) -> None:
    @bare.batch(5)
    async def embed(texts: list[str], db: str = Depends(session)) -> list[int]:
        return [len(text) for text in texts]

    async def two(texts: list[str], more: list[str], db: Annotated[str, Depends(session)]) -> list[int]:
        return []

    wrong: Any = bare
    assert embed.call("ann").job.payload == Raw(b'{"texts":"ann"}')
    assert refusal(lambda: wrong.batch(5)(two)).startswith("batch task 'two' must take exactly one argument")


async def test_a_job_that_brings_what_the_worker_fills_is_refused(app: Unstuck) -> None:
    handle = await app.send("send", {"to": "ann", "db": "mine"}, queue="default")

    app.task(task_of(session))
    await burst(app)

    with pytest.raises(JobFailed, match="unknown field `db`"):
        await handle.result(timeout=0)


async def test_a_test_puts_a_fake_in_the_place_of_a_dependency(app: Unstuck) -> None:
    left: list[str] = []

    def users(db: Annotated[str, Depends(session)]) -> str:
        return f"users of {db}"

    def fake(limit: Annotated[int, Depends(size)]) -> Iterator[str]:
        yield f"fake {limit}"
        left.append("fake")

    task: Any = app.task(task_of(users))
    async with inline(app, dependencies={session: fake}) as jobs:
        handle = await task.enqueue("ann")
        await jobs.run()
        assert await handle.result(timeout=0) == "ann users of fake 5"
    assert left == ["fake"]
    async with inline(app) as jobs:
        handle = await task.enqueue("ann")
        await jobs.run()
        assert await handle.result(timeout=0) == "ann users of session"


def test_the_same_without_an_event_loop() -> None:
    app = Unstuck("sqlite:///:memory:")
    task: Any = app.task(task_of(session, scope="worker"))

    with inline(app, dependencies={session: lambda: "fake"}) as jobs:
        handle = task.enqueue_sync("ann")
        jobs.run()
        assert handle.result(timeout=0) == "ann fake"


async def test_a_fake_for_nothing_is_refused(app: Unstuck) -> None:
    app.task(task_of(session))
    wrong: Any = inline

    for given, told in [
        ({pool: lambda: ""}, "no task of this app depends on 'pool'"),
        ({session: "fake"}, "Depends() has 'fake': give the function itself, without calling it, as in Depends(session)"),
        ({session: lambda to: to}, "task 'send': parameter 'db': dependency 'test_a_fake_for_nothing_is_refused.<locals>.<lambda>' takes 'to', which nothing fills: give it a default or Depends(…); the arguments of a job are in current_job().job.payload"),
    ]:  # fmt: skip
        block = wrong(app, dependencies=given)
        with pytest.raises(ConfigError) as caught:
            await block.__aenter__()
        assert str(caught.value) == told


def isolated(to: str, db: Annotated[str, Depends(session)]) -> str:
    return db


async def test_a_fake_cannot_go_to_a_process_of_its_own(app: Unstuck) -> None:
    task: Any = app.task(isolate=True)(isolated)

    async with inline(app, dependencies={session: lambda: "fake"}) as jobs:
        handle = await task.enqueue("ann")
        await jobs.run()
        with pytest.raises(
            JobFailed, match="in a process of its own, where nothing can replace its dependencies"
        ):
            await handle.result(timeout=0)
