"""Tasks that are elsewhere: in other modules of the app, or in the code of other workers."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import Command, unstuck
from support.refusal import refusal
from support.work import burst

from unstuck import ConfigError, JobFailed, PayloadError, Unstuck, Worker

pytestmark = pytest.mark.anyio
BAKERY = 'from unstuck import Unstuck\napp = Unstuck("sqlite:///jobs.db"{})\n'
BREAD = """from bakery_app import app

@app.task(queue="oven")
async def bake(loaves: int) -> int:
    return loaves
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With an app, and two modules of which one has its task and the other is broken."""
    (tmp_path / "bakery_app.py").write_text(BAKERY.format(', include=["bakery_bread"]'))
    (tmp_path / "bakery_bare.py").write_text(BAKERY.format(""))
    (tmp_path / "bakery_bread.py").write_text(BREAD)
    (tmp_path / "bakery_bad.py").write_text("1 / 0")
    (tmp_path / "bakery_poor.py").write_text("import bakery_flour")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in [name for name in sys.modules if name.startswith("bakery_")]:
        del sys.modules[module]


async def test_a_worker_runs_tasks_of_modules_that_the_app_names(folder: Path) -> None:
    from bakery_app import app  # type: ignore[import-not-found]

    assert app.tasks == {}
    async with app.using(f"sqlite:///{folder}/jobs.db"):
        handle = await app.send("bake", {"loaves": 3})
        await Worker(app, burst=True).run()

        assert (handle.queue, await handle.result(timeout=0)) == ("oven", 3)


async def test_a_queue_of_a_module_that_is_not_imported_yet_is_known(folder: Path) -> None:
    from bakery_app import app

    task = app.task(name="knead")(lambda: None)

    assert task.options(queue="oven").call().job.queue == "oven"
    assert list(app.tasks) == ["knead", "bake"]


def test_the_command_finds_them_too(folder: Path) -> None:
    run: Command = lambda *arguments: unstuck(folder, *arguments, store=None)  # noqa: E731
    id_ = run("enqueue", "--app", "bakery_app:app", "bake", '{"loaves": 3}').stdout.strip()

    refused = run("enqueue", "--app", "bakery_app:app", "bake", '{"loaves": "3"}')
    worked = run("worker", "bakery_app:app", "--burst")

    assert refused.returncode == 2
    assert "Expected `int`, got `str`" in refused.stderr
    assert worked.returncode == 0, worked.stderr
    assert '"status": "completed"' in run("job", id_, "--store", "sqlite:///jobs.db", "--json").stdout


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_is_given_further_modules_on_the_command_line(folder: Path, processes: str) -> None:
    for name in ("bread", "cake"):
        text = BREAD.replace("bakery_app", "bakery_bare").replace("def bake", f"def bake_{name}")
        (folder / f"bakery_{name}.py").write_text(text)
    store = "sqlite:///jobs.db"
    ids = [
        unstuck(
            folder, "enqueue", f"bake_{name}", '{"loaves": 3}', "--queue", "oven", store=store
        ).stdout.strip()
        for name in ("bread", "cake")
    ]

    include = ["--include", "bakery_bread", "--include", "bakery_cake"]
    worked = unstuck(
        folder, "worker", "bakery_bare:app", "--burst", "--processes", processes, *include, store=store
    )

    assert worked.returncode == 0, worked.stderr
    for id_ in ids:
        assert '"status": "completed"' in unstuck(folder, "job", id_, "--json", store=store).stdout


def test_the_error_of_an_app_without_tasks_names_how_it_gets_some(folder: Path) -> None:
    told = unstuck(folder, "worker", "bakery_bare:app", "--processes", "0").stderr

    assert "this app has no tasks: register one with @app.task, or name the modules that do, by " in told
    assert 'Unstuck(…, include=["shop.mail"]) or by unstuck worker --include shop.mail' in told


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("bakery_buns", "include='bakery_buns': module 'bakery_buns' is not found; start in the folder that has it"),
        ("bakery_bad", "include='bakery_bad': module 'bakery_bad' cannot be imported: ZeroDivisionError: division by zero (at bakery_bad.py, line 1)"),
        ("bakery_poor", "include='bakery_poor': module 'bakery_poor' imports 'bakery_flour', which is not found; install it, or start in the folder that has it"),
        ("bakery_bread.py", "include='bakery_bread.py': 'bakery_bread.py' is a file, not a module: write 'bakery_bread'"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_imported_is_named_with_why(folder: Path, module: str, told: str) -> None:
    app = Unstuck("sqlite:///jobs.db", include=[module])

    assert refusal(lambda: Worker(app)) == told


def test_modules_are_a_list_of_names() -> None:
    wrong: Any = Unstuck

    assert refusal(lambda: wrong("sqlite:///jobs.db", include="shop.mail")) == (
        "include is 'shop.mail': it must be a list of modules, for example ['shop.mail']"
    )
    assert refusal(lambda: wrong("sqlite:///jobs.db", include=["shop/mail"])) == (
        "include has 'shop/mail': it must name modules, for example shop.mail"
    )


async def test_a_job_for_workers_with_other_code_is_sent_by_the_name_of_its_task(app: Unstuck) -> None:
    handle = await app.send("resize", {"width": 640}, queue="media", retry=7, key="a.png", priority=3)
    job = await handle.job()

    assert (job.task, job.queue, job.payload) == ("resize", "media", {"width": 640})
    assert (job.max_attempts, job.key, job.priority) == (7, "a.png", 3)

    other = Unstuck(app.url)  # the other code base

    @other.task(queue="media")
    async def resize(width: int) -> dict[str, int]:
        if width < 0:
            raise ValueError("negative")
        return {"width": width}

    failing = await app.send("resize", {"width": -1}, queue="media", retry=1)
    await burst(other)
    await other.__aexit__()

    assert await handle.result(timeout=0) == {"width": 640}
    with pytest.raises(JobFailed, match="negative"):
        await failing.result(timeout=0)


async def test_a_task_of_ones_own_is_checked_when_it_is_sent_by_name(app: Unstuck) -> None:
    @app.task(queue="mail", retry=9)
    async def post(to: str) -> list[str]:
        return [to]

    job = await (await app.send("post", {"to": "ann"}, delay=5)).job()

    assert (job.queue, job.max_attempts) == ("mail", 9)
    with pytest.raises(PayloadError, match="Expected `str`, got `int`"):
        await app.send("post", {"to": 5})
    with pytest.raises(
        ConfigError, match=r"the app has no task 'pots' \(.*post.*\); to enqueue it anyway, name its queue"
    ):
        await app.send("pots", {"to": "ann"})


def test_it_is_sent_without_an_event_loop_too(tmp_path: Path) -> None:
    handle = Unstuck(f"sqlite:///{tmp_path}/jobs.db").send_sync("resize", {"width": 640}, queue="media")

    assert (handle.queue, handle.job().task) == ("media", "resize")
