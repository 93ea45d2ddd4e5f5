"""How ``unstuck worker`` starts: what it says first, and what becomes of a start that cannot succeed."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from support.command import COMMAND, LONGEST, STORE, TASKS, Answer, Command, said

from unstuck.worker.supervisor import StartReport, Supervisor

APP = """
from contextlib import asynccontextmanager
from unstuck import Unstuck
app = Unstuck("sqlite:///jobs.db")

@app.task(queue="mail")
async def send() -> None: ...
"""
FAILS = """
@app.lifespan
@asynccontextmanager
async def pool():
    raise RuntimeError("no password for the pool")
    yield
"""
PROGRAM = """
import asyncio
from unstuck import Rate, Unstuck, Worker
print("import", __name__, flush=True)
app = Unstuck("sqlite:///jobs.db")
app.queue("slow", rate=Rate(20, per=60))

@app.task(queue="slow", isolate=ISOLATE)
async def once() -> None: ...

async def main():
    handle = await once.enqueue()
    await Worker(app, burst=True).run()
    print(await handle.status(), flush=True)

asyncio.run(main())
"""


def lines(answer: Answer) -> list[dict[str, Any]]:
    """What was logged; fails for a line that is none of the log's."""
    return [json.loads(line) for line in answer.stderr.splitlines()]


def another_program(folder: Path) -> str:
    connection = apsw.Connection(str(folder / "theirs.db"))
    connection.execute("CREATE TABLE precious (x)")
    connection.close()
    return f"sqlite:///{folder}/theirs.db"


def test_no_foreign_error_stands_in_the_stack_of_a_handler_where_uvloop_is_not_installed(
    run: Command, tmp_path: Path
) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError('not installed')")
    (tmp_path / "failing.py").write_text(APP.replace("...", "raise LookupError('no such entity')"))
    made = said(run("enqueue", "send", "--queue", "mail", "--json"))["id"]

    worker = run("worker", "failing:app", "--burst")
    stack = said(run("job", made, "--json"))["job"]["error"]["stack"]

    assert worker.returncode == 0, worker.stderr
    assert "no such entity" in stack
    assert ("During handling" in stack, "uvloop" in stack) == (False, False)


@pytest.mark.parametrize("options", [(), ("--burst",), ("--processes", "0")], ids=" ".join)
def test_a_worker_whose_store_is_another_programs_logs_it_once_and_ends(
    run: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    answer = run("worker", "tasks:app", *options, "--store", another_program(tmp_path))

    which, told = answer.stderr.splitlines()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "theirs.db, which --store names, and not that of the app" in which
    assert "theirs.db' belongs to another program: give the queue a file of its own" in told


def test_where_a_dead_worker_can_have_no_leases_nobody_tries_to_end_them_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    urls = [another_program(tmp_path), f"sqlite:///{tmp_path}/never.db"]

    async def speak() -> None:
        supervisor = Supervisor([], processes=1, grace=1.0)
        async with asyncio.timeout(20):
            for url in urls:
                await supervisor._end_leases(StartReport("worker-1", url, 60.0), "signal SIGKILL")

    asyncio.run(speak())

    told = [line.partition(", if it had any, will run out: ")[0] for line in caplog.messages]
    assert told == ["the leases of worker-1"] * 2
    assert not (tmp_path / "never.db").exists()


def test_a_lifespan_that_fails_is_one_line_of_the_log_and_ends_a_burst(run: Command, tmp_path: Path) -> None:
    (tmp_path / "life.py").write_text(APP + FAILS)

    answer = run("worker", "life:app", "--burst")
    told, died = lines(answer)

    assert answer.returncode == 1
    assert told["message"] == "lifespan 'pool' (life:9) failed: RuntimeError: no password for the pool"
    assert told["level"] == "ERROR"
    assert "life.py" in told["stack"]
    assert died["message"].endswith("died: exit code 1")
    assert said(run("status", "--json")) == [], "the schema was there before the lifespan was entered"


def test_a_lifespan_that_fails_without_a_supervisor_ends_the_worker_with_1(
    run: Command, tmp_path: Path
) -> None:
    (tmp_path / "life.py").write_text(APP + FAILS)

    answer = run("worker", "life:app", "--processes", "0")

    assert answer.returncode == 1
    assert [line["message"] for line in lines(answer)] == [
        "lifespan 'pool' (life:9) failed: RuntimeError: no password for the pool"
    ]


def test_the_first_line_names_the_store_by_its_full_path_and_shows_if_it_is_new(
    run: Command, tmp_path: Path
) -> None:
    first, second = (
        [line["message"] for line in lines(run("worker", "tasks:app", "--burst", "--store", STORE))]
        for _ in range(2)
    )

    assert [line for line in first if line.endswith(f", from sqlite:///{tmp_path}/jobs.db, a new file")]
    assert [line for line in second if line.endswith(f", from sqlite:///{tmp_path}/jobs.db")]


def test_a_rate_alone_makes_no_process_import_the_program_again(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("ISOLATE", "False"))

    answer = program(tmp_path)

    assert (answer.returncode, answer.stdout.split()) == (0, ["import", "__main__", "completed"])


def test_the_error_of_a_program_that_starts_a_worker_when_it_is_imported_names_where_to_put_that(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("ISOLATE", "True"))

    answer = program(tmp_path)

    assert answer.stdout.split() == ["import", "__main__", "import", "__mp_main__"]
    assert answer.returncode == 1
    [*_, last] = answer.stderr.splitlines()
    assert last.startswith("unstuck.ConfigError: ")
    assert last.endswith('put its start under if __name__ == "__main__":')


def program(folder: Path) -> Answer:
    return subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )


def test_all_that_is_wrong_with_a_file_is_reported_at_once_queues_of_the_app_included(
    run: Command, tmp_path: Path
) -> None:
    (tmp_path / "unstuck.toml").write_text("""
        [worker]
        concurency = 10
        [queue.mail]
        lease = 5
        lapse_backoff = 30
        [queue.mial]
        limit = 3
        [queue.default]
        heartbeat = 30
    """)

    answer = run("worker", "tasks:app", "--burst")
    *told, wrong = answer.stderr.splitlines()

    assert answer.returncode == 2
    assert [json.loads(line)["message"] for line in told] == [
        "unstuck.toml: queue.mial: no task of the app uses this queue: did you mean 'mail'?"
    ]
    assert [part.partition(": it must")[0][:50] for part in wrong.split("; ")] == [
        "unstuck: unstuck.toml: worker: 'concurency' is not",
        "unstuck.toml: queue.mail: lapse_backoff is 30",
        "unstuck.toml: queue.mail: lease is 5 s, but with a",
        "unstuck.toml: queue.default: lease is 20 s, but wi",
    ]


def worker_with(folder: Path, **environ: str) -> Answer:
    """A worker of ``tasks:app`` with exactly these variables of ours."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("UNSTUCK")}
    argv = [COMMAND, "worker", "tasks:app", "--burst"]
    return subprocess.run(
        argv, cwd=folder, env=usual | environ, capture_output=True, text=True, timeout=LONGEST, check=False
    )


def test_a_wrong_variable_is_reported_before_the_app_is_imported(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("raise SystemExit('imported')")
    answer = worker_with(tmp_path, UNSTUCK_PROCESSES="-1", UNSTUCK_RECOVERY="x", UNSTUCK_GRACE="99999")

    assert (answer.returncode, answer.stderr) == (
        2,
        (
            "unstuck: UNSTUCK_PROCESSES is -1: it must be a whole number from 0 to 256; "
            "UNSTUCK_GRACE is 99999: it must be a number from 0 to 86400 (seconds); "
            "UNSTUCK_RECOVERY is 'x': it must be a number from 0 to 86400 (seconds)\n"
        ),
    )


def test_an_ordinary_worker_does_not_notice_the_variables_of_pipelines(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    answer = worker_with(
        tmp_path,
        JOB_MAX_ATTEMPTS="x",
        QUEUE_RETRY_BACKOFF_MS_BASE="x",
        REAPER_INTERVAL_SEC="0",
        EMBED_JOB_RECOVERY_INTERVAL="0",
        EMBED_JOB_DATABASE_URI="bolt://127.0.0.1:1",
    )

    assert answer.returncode == 0, answer.stderr
    assert "takes mail, default" in answer.stderr
    assert "elsewhere.db" in answer.stderr
    assert "recovery is off" not in answer.stderr


def test_metrics_that_cannot_be_served_are_reported_before_a_worker_starts(
    run: Command, tmp_path: Path
) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('not installed')")
    start = [sys.executable, "-m", "unstuck", "worker", "tasks:app", "--burst", "--metrics-port", "9100"]
    (tmp_path / "tasks.py").write_text(TASKS)
    answer = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)

    assert (answer.returncode, answer.stderr) == (
        2, "unstuck: metrics need the prometheus client: pip install 'unstuck[metrics]'\n"
    )  # fmt: skip
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_misspelt_app_is_reported_with_those_that_the_module_has(run: Command) -> None:
    assert run("worker", "tasks:ap").stderr.endswith("module 'tasks' has no 'ap': it has app\n")
    assert run("worker", "json:app").stderr.endswith("module 'json' has no 'app': it has no Unstuck(…)\n")
