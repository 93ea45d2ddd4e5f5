"""A task shows itself as its function: its name and text, its signature, and what enqueue() takes."""

import asyncio
import inspect
import pydoc
from dataclasses import dataclass

import pytest

from unstuck import Call, Handle, SyncHandle, Task, Unstuck

pytestmark = pytest.mark.anyio
app = Unstuck("sqlite:///:memory:")


@dataclass
class Letter:
    to: str


@app.task
async def post(letter: Letter, *, copies: int = 1) -> "list[str]":
    """Send a letter.

    To one address.
    """
    return [letter.to] * copies


@app.task(name="sum")
def add(a: int, b):  # type: ignore[no-untyped-def]
    return a + b


@app.batch(50, queue="texts")
async def embed(texts: list[str]) -> list[float | Exception]:
    """Embed texts."""
    return [float(len(text)) for text in texts]


def test_a_task_has_the_name_the_text_and_the_signature_of_its_function() -> None:
    assert (post.__name__, post.__qualname__, post.__module__) == ("post", "post", __name__)
    assert inspect.getdoc(post) == "Send a letter.\n\nTo one address."
    assert inspect.iscoroutinefunction(post.__wrapped__)
    assert str(inspect.signature(post)) == f"(letter: {__name__}.Letter, *, copies: int = 1) -> 'list[str]'"
    assert (add.name, add.__name__, add.__doc__) == ("sum", "add", None)
    assert inspect.unwrap(post.options(delay=5)) is post.__wrapped__


def test_what_enqueues_takes_the_same_and_returns_a_handle_of_the_result() -> None:
    takes = inspect.signature(post).parameters

    for method, returns in ((post.enqueue, Handle), (post.enqueue_sync, SyncHandle), (post.call, Call)):
        signature = inspect.signature(method)
        assert signature.parameters == takes
        assert signature.return_annotation == returns[list[str]]
    assert str(inspect.signature(add.call)) == "(a: int, b) -> unstuck.app.call.Call[typing.Any]"


def test_a_job_of_a_batch_is_one_item() -> None:
    assert str(inspect.signature(embed.enqueue)) == "(texts: str) -> unstuck.app.handle.Handle[float]"
    assert str(inspect.signature(embed)) == "(texts: list[str]) -> list[float | Exception]"


def test_help_shows_what_a_task_takes_and_what_its_author_wrote() -> None:
    shown = pydoc.plain(pydoc.render_doc(post.enqueue))

    for part in (f"enqueue(letter: {__name__}.Letter, *, copies: int = 1)", "Handle[list[str]]"):
        assert part in " ".join(shown.split()).replace("( ", "(").replace("1 )", "1)")
    assert "Enqueue a job with these arguments." in shown
    assert "Send a letter." in shown
    assert "To one address." in shown
    assert "Enqueue a job with these arguments." in pydoc.plain(pydoc.render_doc(Task.enqueue))


async def test_they_enqueue_all_the_same_with_options_of_their_own(app: Unstuck) -> None:
    task = app.task(post)
    later = task.options(delay=60, priority=3)

    assert inspect.signature(later.enqueue) == inspect.signature(task.enqueue)
    assert (later.enqueue.__self__, task.enqueue.__self__) == (later, task)  # type: ignore[attr-defined]
    jobs = [await (await one.enqueue(Letter("ann"), copies=2)).job() for one in (task, later)]
    assert [job.priority for job in jobs] == [0, 3]
    assert asyncio.iscoroutinefunction(task.enqueue)


async def test_a_task_of_one_app_can_be_one_of_another(app: Unstuck) -> None:
    twin = app.task(queue="letters")(post)

    assert (twin.name, twin.handler.function) == ("post", post.handler.function)
    assert await twin(Letter("ann")) == ["ann"]


def test_a_function_without_a_name_shows_what_it_has() -> None:
    task = Unstuck("sqlite:///:memory:").task(name="half")(lambda a: a / 2)

    assert (task.__name__, str(inspect.signature(task))) == ("<lambda>", "(a)")
