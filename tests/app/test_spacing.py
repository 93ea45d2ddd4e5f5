"""Debounce and throttle, as applications and people ask for them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.command import unstuck

from unstuck import ConfigError, Task, Unstuck
from unstuck.protocol.job import Status
from unstuck.testing import inline

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Unstuck]:
    async with Unstuck(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def index(app: Unstuck, ran: list[int]) -> Task[[int], None]:
    @app.task(queue="search")
    async def index(version: int) -> None:
        ran.append(version)

    return index


async def test_a_debounced_task_runs_once_after_the_last_call(
    app: Unstuck, index: Task[[int], None], ran: list[int]
) -> None:
    async with inline(app) as jobs:
        first = await index.options(key="page-7", debounce=300).enqueue(1)
        await jobs.run(ahead=200)
        assert ran == []
        last = await index.options(key="page-7", debounce=timedelta(minutes=5)).enqueue(2)
        await jobs.run(ahead=200)
        assert ran == []
        await jobs.run(ahead=301)

        assert ran == [2]
        assert (first.created, last.created, last.id == first.id) == (True, False, True)
        assert not last.same_content
        after = await index.options(key="page-7", debounce=300).enqueue(3)
        assert after.created
        await jobs.run(ahead=301)
        assert ran == [2, 3]


async def test_a_throttled_task_runs_the_first_call_of_each_interval(
    app: Unstuck, index: Task[[int], None], ran: list[int]
) -> None:
    throttled = index.options(key="page-7", throttle=timedelta(minutes=5))
    async with inline(app) as jobs:
        handles = await app.enqueue_many([throttled.call(1), throttled.call(2), index.call(9)])
        assert [handle.created for handle in handles] == [True, False, True]
        await jobs.run()
        assert not (await throttled.enqueue(3)).created
        await index.options(delay=301).enqueue(10)  # what makes the time pass
        await jobs.run(ahead=400)
        await throttled.enqueue(4)
        await jobs.run()
        assert ran == [1, 9, 10, 4]


async def test_every_way_to_enqueue_takes_them(app: Unstuck, index: Task[[int], None]) -> None:
    jobs = await app.jobs()
    answers: list[Any] = [
        await jobs.enqueue_task("index", {"version": 1}, key="a", throttle=60),
        await jobs.enqueue_task("index", {"version": 2}, key="a", throttle=timedelta(minutes=1)),
        await app.send("index", {"version": 3}, key="a", throttle=timedelta(minutes=1)),
        await app.send("index", {"version": 4}, key="b", debounce=60),
        await app.send("index", {"version": 5}, key="b", debounce=timedelta(minutes=1)),
    ]

    assert [answer.created for answer in answers] == [True, False, False, True, False]
    found = await jobs.get_by_id_or_key("b")
    assert (found.payload, found.key, found.status) == ({"version": 5}, "b", Status.PENDING)
    assert found.run_at - found.created_at >= timedelta(minutes=1)


def test_code_without_an_event_loop_debounces_too(tmp_path: Path) -> None:
    app = Unstuck(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def save(text: str) -> None: ...

    task = save.options(key="k", debounce=60)
    assert [task.enqueue_sync(text).created for text in ("a", "b")] == [True, False]


async def test_the_newest_job_of_a_key_is_found(app: Unstuck, index: Task[[int], None]) -> None:
    await index.options(key="k", debounce=60).enqueue(1)
    jobs = await app.jobs()
    await jobs.cancel((await jobs.get_by_id_or_key("k")).id)
    newer = await index.options(key="k", debounce=60).enqueue(2)

    assert (await jobs.get_by_id_or_key("k", "search")).id == newer.id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"debounce": 30}, "debounce needs a key"),
        ({"throttle": 30}, "throttle needs a key"),
        ({"key": "k", "debounce": 30, "throttle": 30}, "give one of them"),
        ({"key": "k", "debounce": 30, "again": True}, "leave it out"),
        ({"key": "k", "throttle": 30, "again": True}, "leave it out"),
        ({"key": "k", "debounce": 30, "delay": 5}, "leave delay and run_at out"),
        (
            {"key": "k", "debounce": 30, "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "leave delay and run_at out",
        ),
        ({"key": "k", "debounce": 0}, "debounce is 0.* from 0.1 to 31622400"),
        ({"key": "k", "throttle": float("nan")}, "throttle is nan.* from 0.1 to 31622400"),
        ({"key": "k", "throttle": timedelta(days=400)}, "throttle is .* from 0.1 to 31622400"),
        ({"key": "k", "debounce": "30"}, "debounce is '30'"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_the_way_out(
    index: Task[[int], None], options: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        index.options(**options)


def test_the_command_debounces_and_throttles(tmp_path: Path) -> None:
    first = unstuck(tmp_path, "enqueue", "index", '{"version": 1}', "--key", "k", "--debounce", "1m")
    second = unstuck(tmp_path, "enqueue", "index", '{"version": 2}', "--key", "k", "--debounce", "60")
    assert (first.returncode, second.returncode) == (0, 0)
    assert second.stdout == f"{first.stdout.strip()} (existed already, with other content)\n"
    third = unstuck(tmp_path, "enqueue", "index", '{"version": 2}', "--key", "k", "--throttle", "1m")
    assert third.stdout == f"{first.stdout.strip()} (existed already)\n"
    assert "{'version': 2}" in unstuck(tmp_path, "job", "k").stdout

    wrong = unstuck(tmp_path, "enqueue", "index", "--debounce", "30")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "debounce needs a key" in wrong.stderr
