"""The backend for Django's Tasks framework, on a real site: enqueue, look up, run by workers, transactions."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.checks import run_checks
from django.db import connection, transaction
from django.tasks import TaskResultStatus, task_backends
from django.tasks.exceptions import (
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultMismatch,
)
from django.tasks.signals import task_enqueued, task_finished, task_started
from support.examples import drive
from support.folders import IMPORTABLE
from support.postgres import Postgres

from unstuck import ConfigError, Status, Unstuck, Worker
from unstuck.app.sync import portal
from unstuck.contrib.django import UnstuckBackend
from unstuck.contrib.django.address import same_database, store_url
from unstuck.contrib.django.backend import level


@pytest.fixture(scope="module")
def site(pg18: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The tasks of a site that has been set up in this process."""
    url = pg18.create_database()
    os.environ["SITE_DATABASE"] = url
    os.environ["SITE_ELSEWHERE"] = f"sqlite:///{tmp_path_factory.mktemp('site')}/jobs.db"
    os.environ["DJANGO_SETTINGS_MODULE"] = "django_site.settings"
    django.setup()
    import django_site.tasks as tasks

    yield tasks
    connection.close()
    for name in ("SITE_DATABASE", "SITE_ELSEWHERE", "DJANGO_SETTINGS_MODULE"):
        del os.environ[name]
    for alias in ("default", "named", "elsewhere"):
        portal().run(backend(alias).app.__aexit__(None, None, None))


def backend(alias: str = "default") -> UnstuckBackend:
    found = task_backends[alias]
    assert isinstance(found, UnstuckBackend)
    return found


def work(alias: str = "default") -> None:
    """Let a worker run what is due."""
    app = backend(alias).app
    asyncio.run(_work(app))


async def _work(app: Unstuck) -> None:
    async with Unstuck(app.url) as own:
        own.tasks, own.queues = app.tasks, app.queues
        await Worker(own, burst=True, recovery=0).run()


def pending(alias: str = "default") -> int:
    async def count() -> int:
        return (await (await backend(alias).app.jobs()).get_queue_status())["pending"]

    return portal().run(count())


def test_a_task_is_run_by_a_worker_and_its_result_read(site: Any) -> None:
    result = site.add.enqueue(1, b=2)
    assert (result.status, result.attempts, result.args, result.kwargs) == ("READY", 0, [1], {"b": 2})
    assert result.enqueued_at is not None
    assert site.add.get_result(result.id).status is TaskResultStatus.READY
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    work()
    result.refresh()

    assert (result.status, result.return_value, result.errors) == ("SUCCESSFUL", 3, [])
    assert result.attempts == 1
    assert result.worker_ids[0].startswith("worker-")
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert result.is_finished
    assert result.task == site.add


def test_a_result_that_was_too_large_to_be_kept_is_reported_as_that(site: Any) -> None:
    result = site.much.enqueue()
    work()
    result.refresh()

    assert result.status is TaskResultStatus.SUCCESSFUL
    assert result.return_value["unstuck"] == "result dropped"


def test_an_async_task_goes_to_its_queue_with_its_priority(site: Any) -> None:
    result = site.greet.enqueue("Ann")
    job = portal().run(_job(result.id))
    work()
    result.refresh()

    assert (job.queue, job.priority, job.task) == ("mail", 7, "django_async")
    assert result.return_value == "Hello, Ann!"
    assert (result.task.queue_name, result.task.priority) == ("mail", 50)


async def _job(id_: str) -> Any:
    return await (await backend().app.jobs()).get(id_)


def test_an_attempt_that_failed_is_reported_and_made_good_by_the_next(site: Any) -> None:
    result = site.attempt.enqueue()
    work()
    result.refresh()
    assert (result.status, result.attempts) == ("READY", 1)
    assert result.errors[0].exception_class is ValueError
    assert "not at first" in result.errors[0].traceback
    with connection.cursor() as cursor:
        cursor.execute("UPDATE unstuck.jobs SET next_earliest_run_at = now() WHERE id = %s", [result.id])
    work()
    result.refresh()

    assert (result.status, result.return_value) == ("SUCCESSFUL", [2, result.id])
    assert len(result.worker_ids) == 2
    assert len(set(result.worker_ids)) == 2
    assert [error.exception_class_path for error in result.errors] == ["builtins.ValueError"]


def test_a_failure_that_is_final_has_its_traceback(site: Any) -> None:
    result = site.refuse.enqueue()
    odd = site.strange.enqueue()
    work()
    result.refresh()
    odd.refresh()

    assert (result.status, result.attempts) == ("FAILED", 1)
    assert result.errors[0].exception_class_path == "unstuck.Permanent"
    assert 'raise Permanent("no such order")' in result.errors[0].traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert (odd.status, odd.attempts) == ("FAILED", 1)
    assert "JSON cannot say" in odd.errors[0].traceback


def test_a_task_waits_until_run_after(site: Any) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    result = site.add.using(run_after=later).enqueue(1)
    work()
    found = site.add.get_result(result.id)

    assert (found.status, found.task.run_after) == ("READY", later)
    portal().run(_cancel(result.id))
    assert site.add.get_result(result.id).errors[0].exception_class_path == "unstuck.JobFailed"


async def _cancel(id_: str) -> None:
    assert await (await backend().app.jobs()).cancel([id_]) == 1


def test_a_task_is_enqueued_if_its_transaction_commits(site: Any) -> None:
    with transaction.atomic():
        kept = site.add.enqueue(1)
        assert pending() == 0
        with transaction.atomic():
            lost = site.add.enqueue(2)
            transaction.set_rollback(True)
    with transaction.atomic():
        site.add.enqueue(3)
        transaction.set_rollback(True)

    assert pending() == 1
    work()
    assert site.add.get_result(kept.id).return_value == 2
    with pytest.raises(TaskResultDoesNotExist):
        site.add.get_result(lost.id)


def test_any_connection_of_django_s_can_be_joined(site: Any) -> None:
    app = Unstuck(backend().url)
    task: Any = app.task(name="t", queue="other")(lambda: 5)
    keyed = task.options(key="one", again=True)
    for django_connection in (connection, transaction.get_connection()):
        with transaction.atomic():
            app.enqueue_in_sync(django_connection, [task.call()])
            transaction.set_rollback(True)
        [handle] = app.enqueue_in_sync(
            django_connection, [keyed.call()]
        )  # outside of a transaction it just commits
        with transaction.atomic():
            [met] = app.enqueue_in_sync(django_connection, [task.options(key="one").call()])
            [added] = app.enqueue_in_sync(django_connection, [task.call()])
        asyncio.run(_work(app))

        assert [handle.created, met.created, added.created] == [True, False, True]
        assert [handle.result(), added.result()] == [5, 5]
    portal().run(app.__aexit__(None, None, None))


def test_a_store_named_by_its_url_is_joined_if_it_is_in_a_database_of_django_s(site: Any) -> None:
    assert [backend(alias).database for alias in ("default", "named", "elsewhere")] == [
        "default",
        "default",
        None,
    ]
    with transaction.atomic():
        site.named.enqueue()
        result = site.elsewhere.enqueue()
        transaction.set_rollback(True)
    work("elsewhere")

    assert pending("named") == 0
    assert site.elsewhere.get_result(result.id).return_value == "elsewhere"
    [warning] = [found for found in run_checks() if found.id == "unstuck.W001"]
    assert "TASKS['elsewhere'] is in none of DATABASES" in warning.msg


def test_async_code_enqueues_and_looks_up(site: Any) -> None:
    async def main() -> tuple[str, str]:
        result = await site.async_attempt.aenqueue()
        found = await site.async_attempt.aget_result(result.id)
        return result.id, found.status

    id_, status = asyncio.run(main())
    work()

    assert status == "READY"
    assert site.async_attempt.get_result(id_).return_value == 1


def test_signals_report_what_happens(site: Any) -> None:
    heard: list[tuple[str, str, str]] = []

    def hear(signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
        heard.append((sender.__name__, names[signal], str(task_result.status)))

    names = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}
    for signal in names:
        signal.connect(hear)
    site.add.enqueue(1)
    work()
    site.refuse.enqueue()
    work()
    for signal in names:
        signal.disconnect(hear)

    assert [one[1:] for one in heard] == [
        ("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL"),
        ("enqueued", "READY"), ("started", "RUNNING"), ("finished", "FAILED"),
    ]  # fmt: skip
    assert {one[0] for one in heard} == {"UnstuckBackend"}


def test_what_a_backend_must_refuse_is_refused(site: Any) -> None:
    with pytest.raises(InvalidTask, match="priority must be a whole number"):
        site.add.using(priority=101)
    with pytest.raises(InvalidTask, match="aware datetime"):
        site.add.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001 - that is what is wrong with it
    with pytest.raises(InvalidTask, match="Queue 'letters' is not valid"):
        site.add.using(queue_name="letters")
    with pytest.raises(TypeError):
        site.add.enqueue(object())
    for unknown in ("nobody", "\n"):
        with pytest.raises(TaskResultDoesNotExist):
            site.add.get_result(unknown)
    with pytest.raises(TaskResultMismatch):
        site.greet.get_result(site.add.enqueue(1).id)
    work()


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"QUEUES": []}, "must name its QUEUES"),
        ({"QUEUES": ["a b"]}, "queue name 'a b' is not allowed"),
        ({"OPTIONS": {"colour": 1}}, "unknown option 'colour': there are database, expires, factors"),
        ({"OPTIONS": {"retry": 0}}, "it must be a whole number"),
        ({"OPTIONS": {"store": "mysql://x"}}, "store 'mysql://x' is not known"),
    ],
)
def test_settings_that_cannot_be_are_reported_when_the_backend_is_made(params: Any, told: str) -> None:
    with pytest.raises(InvalidTaskBackend, match=told):
        UnstuckBackend("default", params)


def test_priorities_are_bands_of_twenty() -> None:
    assert [level(priority) for priority in (-100, -81, -80, -1, 0, 19, 20, 79, 80, 100)] == [
        0, 0, 1, 4, 5, 5, 6, 8, 9, 9,
    ]  # fmt: skip


def test_the_store_s_url_is_made_of_django_s_settings() -> None:
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "shop",
        "USER": "a@b",
        "PASSWORD": "p/w:",
        "PORT": "",
    }
    given = {**database, "HOST": "/run/pg", "OPTIONS": {"sslmode": "require", "pool": True}}

    assert store_url("default", given) == "postgresql://a%40b:p%2Fw%3A@/shop?sslmode=require&host=%2Frun%2Fpg"
    assert same_database("postgresql://x@/shop?host=/run/pg&schema=s", store_url("default", given))
    assert not same_database("postgresql://x@/shop", store_url("default", given))
    with pytest.raises(ConfigError, match="'default' is none of PostgreSQL"):
        store_url("default", {**database, "ENGINE": "django.db.backends.sqlite3"})


def command(folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "unstuck", "worker", "unstuck.contrib.django:app", *options]
    env = {**os.environ, "PYTHONPATH": IMPORTABLE, **env}
    return subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_runs_a_worker_and_closes_its_connections(site: Any, tmp_path: Path) -> None:
    results = [site.session.enqueue() for _ in range(3)] + [site.greet.enqueue("Bob")]

    done = command(tmp_path, "--burst", "--concurrency", "1")

    assert done.returncode == 0, done.stderr
    for result in results:
        result.refresh()
    assert len({result.return_value for result in results[:3]}) == 3  # CONN_MAX_AGE is 0
    assert results[3].return_value == "Hello, Bob!"
    assert portal().run(_job(results[3].id)).status is Status.COMPLETED


def test_a_task_that_killed_its_worker_runs_again_in_a_process_of_its_own(site: Any, tmp_path: Path) -> None:
    result = site.kill.enqueue()

    done = command(tmp_path, "--burst")
    result.refresh()

    assert (result.status, result.attempts, done.returncode) == ("SUCCESSFUL", 2, 0), done.stderr
    assert result.return_value == 2
    assert [error.exception_class_path for error in result.errors] == ["unstuck.JobFailed"]
    assert "SIGKILL" in result.errors[0].traceback


@pytest.mark.parametrize(
    ("settings", "told"),
    [("", "Requested setting"), ("nowhere", "No module named 'nowhere'")],
)
def test_the_command_names_what_is_wrong_with_the_settings(settings: str, told: str, tmp_path: Path) -> None:
    done = command(tmp_path, "--processes", "0", DJANGO_SETTINGS_MODULE=settings)

    assert done.returncode == 2
    assert f"Django's settings cannot be used: {told}" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_example_stores_an_order_and_its_job_together_or_not_at_all(pg18: Postgres) -> None:
    url = pg18.create_database()

    drive("django_app", url)

    pg18.drop_database(url)
