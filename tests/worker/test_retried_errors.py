"""Which errors a task has tried again and which never, wherever its handler runs."""

from collections.abc import Callable
from typing import Any

import pytest
from support.work import burst

from unstuck import (
    Category,
    ConfigError,
    Exponential,
    Permanent,
    RateLimited,
    Retry,
    Snooze,
    Status,
    Transient,
    Unstuck,
    Worker,
)
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


class Closed(LookupError):
    pass


# Without it the first is permanent and the others are tried again.
CHOSEN = Retry(attempts=2, backoff=(600.0,), on=(NotImplementedError,), never=(LookupError, ConnectionError))
RAISED: dict[str, BaseException] = {
    "on": NotImplementedError("not yet"),
    "never": Closed("for good"),
    "neither": RuntimeError("a bug"),
    "both in a group": ExceptionGroup("several", [NotImplementedError("one"), Closed("other")]),
    "exit": SystemExit(5),
}
EXPECTED = {
    "on": ("pending", Category.TRANSIENT, "NotImplementedError"),
    "never": ("failed", Category.PERMANENT, "Closed"),
    "neither": ("pending", Category.TRANSIENT, "RuntimeError"),
    "both in a group": ("failed", Category.PERMANENT, "Closed"),
    "exit": ("pending", Category.TRANSIENT, "SystemExit"),
}
whole = Unstuck("sqlite:///:memory:")


async def on_loop(what: str) -> None:
    raise RAISED[what]


def in_thread(what: str) -> None:
    raise RAISED[what]


async def together(whats: list[str]) -> list[None]:
    """As a whole; several at a time run again one by one if it is permanent."""
    raise RAISED[whats[0]]


async def one_by_one(whats: list[str]) -> list[BaseException]:
    return [RAISED[what] for what in whats]


@whole.task(retry=CHOSEN, isolate=True)
def apart(what: str) -> None:
    raise RAISED[what]


WAYS: dict[str, Callable[[Unstuck], Any]] = {
    "on the loop": lambda app: app.task(retry=CHOSEN)(on_loop),
    "in a thread": lambda app: app.task(retry=CHOSEN)(in_thread),
    "within its time": lambda app: app.task(retry=CHOSEN, timeout=60)(in_thread),
    "in a process": lambda app: app.task(retry=CHOSEN, isolate=True)(in_thread),
    "a batch": lambda app: app.batch(1, retry=CHOSEN)(together),
    "an answer of a batch": lambda app: app.batch(10, retry=CHOSEN)(one_by_one),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_task_decides_which_errors_are_tried_again_wherever_it_runs(way: str, app: Unstuck) -> None:
    task = WAYS[way](app)
    handles = {what: await task.enqueue(what) for what in RAISED}

    await burst(app)

    assert await endings(handles) == EXPECTED


async def test_it_holds_for_a_task_that_its_process_finds_under_its_name(app: Unstuck) -> None:
    async with whole.using(app.url):
        handles = {what: await apart.enqueue(what) for what in RAISED}
        await burst(whole)

        assert await endings(handles) == EXPECTED


async def test_a_batch_whose_error_is_never_tried_again_runs_once_more_one_by_one(app: Unstuck) -> None:
    calls: list[int] = []

    @app.batch(5, retry=CHOSEN)
    async def embed(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        if "poison" in texts:
            raise Closed("for good")
        return texts

    handles = await app.enqueue_many([embed.call(text) for text in ("a", "poison", "b")])
    await burst(app)

    assert calls == [3, 1, 1, 1]
    assert [await handle.status() for handle in handles] == ["completed", "failed", "completed"]


SAID = [
    (Permanent("no"), Status.FAILED, 1),
    (Transient("wait"), Status.PENDING, 1),
    (Snooze(600), Status.PENDING, 0),
    (RateLimited("slow down", delay=600), Status.PENDING, 0),
]


@pytest.mark.parametrize(("word", "status", "attempts"), SAID, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("named", ["on", "never"])
async def test_what_a_handler_decides_itself_holds_beside_a_list_of_everything(
    app: Unstuck, word: Exception, status: Status, attempts: int, named: str
) -> None:
    everything: Any = {named: (Exception,)}

    @app.task(retry=Retry(attempts=2, backoff=(600.0,), **everything))
    async def decide() -> None:
        raise word

    handle = await decide.enqueue()
    await Worker(app, burst=True, wait_for_limits=False).run()

    assert ((await handle.job()).status, (await handle.job()).attempts) == (status, attempts)


async def test_each_attempt_waits_longer_up_to_the_longest(app: Unstuck, harness: SQLiteHarness) -> None:
    @app.task(retry=Retry(5, backoff=Exponential(base=100, factor=3, longest=500)))
    async def embed() -> None:
        raise ConnectionResetError("gone")

    assert (await (await embed.enqueue()).job()).backoff == (100.0, 300.0, 500.0)
    handle, waits = await embed.enqueue(), []
    for _ in range(4):
        await burst(app)
        job = await handle.job()
        assert job.error is not None
        assert job.error.at is not None
        waits.append((job.run_at - job.error.at).total_seconds())
        await harness.age(1000)

    assert all(low - 1 < wait < 1.2 * low + 1 for low, wait in zip((100, 300, 500, 500), waits, strict=True))


async def test_a_job_that_is_enqueued_by_name_cannot_carry_classes(app: Unstuck) -> None:
    with pytest.raises(
        ConfigError, match=r"on and never of a Retry are part of a task's code, .* @app\.task\(retry=Retry"
    ):
        await (await app.jobs()).enqueue_task("send", {}, queue="mail", retry=CHOSEN)


async def test_an_isolated_task_names_only_errors_that_its_process_can_import(app: Unstuck) -> None:
    class Hidden(Exception):
        pass

    with pytest.raises(
        ConfigError, match=r"task 'in_thread' cannot be isolated: its error '.*Hidden' is not at module level"
    ):
        app.task(retry=Retry(never=(Hidden,)), isolate=True)(in_thread)


async def endings(handles: dict[str, Any]) -> dict[str, tuple[str, Category, str]]:
    jobs = {what: await handle.job() for what, handle in handles.items()}
    return {what: (str(job.status), job.error.category, job.error.code) for what, job in jobs.items()}
