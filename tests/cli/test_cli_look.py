"""Verbs that look at a store: doctor, verify, init, top, completion; and how soon help comes."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.command import COMMAND, STORE, TASKS, Answer, Command, said, unstuck
from support.processes import Child
from support.waiting import until

from unstuck import Overview, open_store
from unstuck.cli.frames import frame
from unstuck.operations.doctor import doctor
from unstuck.operations.health import health_status
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Category, Failure, NewJob
from unstuck.protocol.leases import Share
from unstuck.protocol.operators import Counts
from unstuck.protocol.outcome import failed
from unstuck.protocol.store import Store

pytestmark = pytest.mark.slow  # on further Pythons test_cli.py says enough


def at(folder: Path, work: Callable[[Store], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with open_store(f"sqlite:///{folder}/jobs.db") as store:
            await store.migrate()
            return await work(store)

    return asyncio.run(run())


def findings(answer: Answer, level: str) -> list[str]:
    return [one["what"] for one in json.loads(answer.stdout) if one["level"] == level]


def test_init_prepares_a_store_and_writes_settings_once(run: Command, tmp_path: Path) -> None:
    assert run("init").returncode == 0
    assert not (tmp_path / "unstuck.toml").exists(), (
        "nobody asked for it, and it would override the app's store"
    )
    first = run("init", "--write-config")
    assert (first.returncode, (tmp_path / "jobs.db").exists()) == (0, True)
    assert f'store = "{STORE}"' in (tmp_path / "unstuck.toml").read_text()
    (tmp_path / "unstuck.toml").write_text("# mine")
    assert "left as it is" in run("init", "--write-config").stdout
    assert (tmp_path / "unstuck.toml").read_text() == "# mine"
    (tmp_path / "unstuck.toml").unlink()
    run("init", "--write-config")
    assert run("worker", "tasks:app", "--burst", store=None).returncode == 0, "the sample is no valid file"


def test_the_doctor_finds_nothing_wrong_with_a_healthy_store(run: Command) -> None:
    run("init")
    answer = run("doctor", "--json")
    assert answer.returncode == 0
    assert findings(answer, "failure") == findings(answer, "warning") == []
    assert "schema version" in run("doctor", STORE, store=None).stdout


def test_the_doctor_names_what_is_stuck_and_the_next_step(run: Command, tmp_path: Path) -> None:
    async def trouble(store: Store) -> None:
        await store.enqueue(
            [
                NewJob(queue=queue, task="t", id=f"{queue}{n}")
                for queue in ("stuck", "dead", "alone", "idle")
                for n in range(2)
            ]
        )
        await store.lease({"stuck": Share(0.001, 9)}, 9, "gone")
        [job, *_] = await store.lease({"dead": Share(60, 1)}, 1, "w")
        why = Failure(category=Category.PERMANENT, code="x", message="no")
        await store.settle([failed(job.lease, why, halt="CRITICAL: disk gone")])
        await store.pause("alone", "CRITICAL fix is being deployed")

    at(tmp_path, trouble)
    answer = run("doctor", "--json")

    assert answer.returncode == 1
    told = " | ".join(findings(answer, "failure") + findings(answer, "warning"))
    assert "2 leases of queue stuck ran out, and no living worker recovers" in told
    assert "2 jobs wait in queue idle, and no worker takes it" in told
    assert "queue dead is halted: CRITICAL: disk gone" in findings(answer, "failure")
    assert "queue alone is paused: CRITICAL fix is being deployed" in findings(answer, "warning")
    assert "1 dead letter in queue dead: 1 x" in told
    notes = {line.split()[0]: line for line in run("status").stdout.splitlines()}
    assert notes["dead"].endswith("halted: CRITICAL: disk gone")
    assert notes["alone"].endswith("paused: CRITICAL fix is being deployed")
    assert said(run("top", "--json"))["health"]["why"].startswith("queue 'dead': CRITICAL: disk gone")
    shown = run("doctor").stdout
    assert "→ unstuck reap --once" in shown
    assert "→ when that is fixed: unstuck resume dead" in shown
    assert "--store" not in shown  # it is the one that the environment names
    for args in (["doctor", STORE], ["explain", "dead0", "--store", STORE]):
        answer = run(*args, store="sqlite:///another.db")
        assert answer.stdout.endswith(f"these commands mean this store: --store {STORE}\n")


def test_the_doctor_reports_what_is_wrong_with_the_file(run: Command, tmp_path: Path) -> None:
    run("init")
    (tmp_path / "jobs.db").chmod(0o644)
    answer = run("doctor", "--json")
    assert [told for told in findings(answer, "warning") if "others may read the file (mode 644)" in told]
    (tmp_path / "jobs.db").write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"jobs.db{suffix}").unlink(missing_ok=True)
    answer = run("doctor", "--json")
    assert answer.returncode == 1
    assert "damaged or not a SQLite database" in findings(answer, "failure")[0]


def test_a_store_that_is_not_made_yet_is_examined_and_leads_to_init(run: Command, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()
    answer = run("doctor", "--json")
    assert answer.returncode == 1
    assert "schema version 0" in findings(answer, "warning")[0]
    assert "has no place for jobs yet" in findings(answer, "failure")[0]
    assert "run unstuck init" in run("verify").stderr


def test_nothing_that_looks_prints_a_password(run: Command) -> None:
    for verb in ("doctor", "verify"):
        for url, code in (
            ("postgres://me:hunter2secret@127.0.0.1:1/jobs", 1),
            ("mysql://me:hunter2secret@host/jobs", 2),
        ):
            answer = run(verb, url, store=None)
            assert answer.returncode == code
            assert "hunter2secret" not in answer.stdout + answer.stderr


def test_verify_names_each_broken_rule(run: Command, tmp_path: Path) -> None:
    run("enqueue", "send", '{"to": "ann"}', "--queue", "mail")
    assert run("verify").stdout == "all rules hold\n"
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = 1")
        db.execute("UPDATE job SET crashes = 5, rank = 1, payload = '{oops'")
    answer = run("verify", "--json")
    assert answer.returncode == 1
    broken = " | ".join(json.loads(answer.stdout)["broken"])
    for rule in ("crashes are attempts", "a place in line is that of its time", "are JSON"):
        assert rule in broken


def test_the_doctor_sees_a_queue_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More wait at the second look than at the first, and more than a hundred."""

    async def growing(store: Store) -> list[Any]:
        await store.enqueue([NewJob(queue="q", task="t", id=f"{n}") for n in range(101)])
        await store.heartbeat(WorkerInfo(id="w", queues=("q",), tasks=("t",)), [])
        count = store.count

        async def and_one_more() -> list[Counts]:
            seen = await count()
            await store.enqueue([NewJob(queue="q", task="t", id=f"after {seen[0].pending}")])
            return seen

        monkeypatch.setattr(store, "count", and_one_more)
        return await doctor(store, seconds=0.0)

    told = [finding.what for finding in at(tmp_path, growing) if finding.level == "warning"]
    assert told == ["queue q grows: 102 jobs wait, 1 more than a moment ago"]


def test_what_prints_prints_json_when_asked(run: Command) -> None:
    assert said(run("init", "--json"))["wrote"] is None
    assert said(run("init", "--write-config", "--json"))["wrote"] == "unstuck.toml"
    assert said(run("pause", "mail", "--new", "--json")) == {"queue": "mail", "paused": "paused by hand"}
    assert said(run("resume", "mail", "--json")) == {"queue": "mail", "resumed": True}
    assert said(run("top", "--json"))["health"]["status"] == "HEALTHY"
    assert said(run("status", "--json")) == []
    assert said(run("verify", "--json")) == {"broken": []}
    for verb in ("jobs", "dead"):
        assert said(run(verb, "--json"))["jobs"] == []


def test_completion_is_printed_for_each_shell(run: Command) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_UNSTUCK_COMPLETE" in run("completion", shell).stdout
    assert run("completion", "cmd.exe").returncode == 2


def test_help_comes_at_once_and_names_every_verb(run: Command) -> None:
    run("--help")
    best = min(_seconds(run) for _ in range(5))
    assert best < 0.25, f"{best:.2f} s"
    told = run("--help").stdout
    for verb in [
        "demo",
        "worker",
        "enqueue",
        "jobs",
        "job",
        "explain",
        "retry",
        "edit",
        "cancel",
        "release",
        "pause",
        "resume",
        "status",
        "top",
        "dead",
        "reap",
        "clean",
        "init",
        "doctor",
        "verify",
        "completion",
    ]:
        assert f"  {verb} " in told
        assert run(verb, "--help").returncode == 0


def _seconds(run: Command) -> float:
    began = time.monotonic()
    run("--help")
    return time.monotonic() - began


def view(queues: int, workers: int) -> Overview:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Overview(
        now=now,
        health=health_status([], [Counts(queue="q", pending=1)], now, None),
        queues=[
            Counts(
                queue=f"queue-{n}",
                pending=10_000,
                delayed=5,
                completed=n,
                totals={"completed": 100},
                waited=75.0,
            )
            for n in range(queues)
        ],
        workers=[
            WorkerInfo(id=f"worker-host-{n}", pid=n, queues=("a", "b"), seen_at=now) for n in range(workers)
        ],
        schedules=[],
        running=[],
        dead=[],
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10)])
def test_a_frame_fits_its_terminal_and_shows_every_section(width: int, height: int) -> None:
    lines = frame(view(30, 30), None, "sqlite:///jobs.db", width, height)
    assert len(lines) <= height
    assert max(len(line.text) for line in lines) <= width
    told = "\n".join(line.text for line in lines)
    for title in ("QUEUE", "RUNNING", "WORKER", "DEAD") if height > 20 else ("QUEUE",):
        assert title in told
    assert "DEGRADED" in lines[0].text
    assert "more" in told


def test_a_queue_that_cannot_be_counted_is_not_shown_as_empty() -> None:
    look = view(1, 1)
    locked = msgspec.structs.replace(look.queues[0], trouble="session 7 has locked it")
    lines = frame(msgspec.structs.replace(look, queues=[locked]), None, "u", 200, 24)
    assert any("session 7 has locked it" in line.text and line.kind == "bad" for line in lines)


def test_a_halt_is_shown_as_a_halt_and_a_pause_as_a_pause() -> None:
    look = view(2, 0)
    halted = msgspec.structs.replace(look.queues[0], halted="CRITICAL: disk gone", paused="by hand")
    paused = msgspec.structs.replace(look.queues[1], paused="CRITICAL fix")
    lines = frame(msgspec.structs.replace(look, queues=[halted, paused]), None, "u", 200, 24)
    assert [line.text.split("  ")[-1].strip() for line in lines if line.text.startswith("queue-")] == [
        "HALTED CRITICAL: disk gone",
        "PAUSED CRITICAL fix",
    ]


def test_rates_are_those_between_two_looks() -> None:
    past = view(1, 0)
    now = msgspec.structs.replace(
        past,
        now=past.now + timedelta(seconds=2),
        queues=[msgspec.structs.replace(past.queues[0], totals={"completed": 150, "failed": 4})],
    )
    [row] = [line.text for line in frame(now, past, "u", 100, 24) if line.text.startswith("queue-0")]
    assert "25.0" in row
    assert "2.0" in row
    assert "75 s" in row


def test_top_in_a_real_terminal(run: Command, tmp_path: Path) -> None:
    """80 × 24, as over ssh: it draws, follows, and q quits."""
    assert shutil.which("tmux"), "tmux is needed: install it"
    run("enqueue", "send", '{"to": "ann"}', "--queue", "mail")
    tmux = ["tmux", "-L", f"unstuck-{os.getpid()}"]
    command = f"cd {tmp_path} && {COMMAND} top --every 0.2 --store {STORE}; echo left with $?; sleep 30"
    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "24", command], check=True)

    def screen() -> str:
        return subprocess.run(
            [*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True
        ).stdout

    try:
        until(lambda: "mail   1" in screen(), 15, "the queue to be shown")
        assert max(map(len, screen().splitlines())) <= 80
        run("enqueue", "send", '{"to": "bob"}', "--queue", "mail")
        until(lambda: "mail   2" in screen(), 15, "the second job to be shown")
        subprocess.run([*tmux, "send-keys", "q"], check=True)
        until(lambda: "left with 0" in screen(), 15, "it to quit")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)


def test_reload_starts_again_when_the_code_changes_and_waits_while_it_is_broken(tmp_path: Path) -> None:
    code = TASKS.replace("elsewhere.db", "jobs.db")
    (tmp_path / "tasks.py").write_text(code)
    argv = [COMMAND, "worker", "tasks:app", "--reload", "--queue", "mail"]
    with Child(argv, tmp_path / "worker.log", cwd=tmp_path) as worker:
        worker.until_line("takes mail", 20)
        (tmp_path / "tasks.py").write_text("def (")
        worker.until_line("tasks.py changed: starting again", 20)
        worker.until_line("cannot be imported", 20)
        (tmp_path / "tasks.py").write_text(code.replace('return f"{count}', 'return f"new: {count}'))
        unstuck(tmp_path, "enqueue", "send", '{"to": "ann"}', "--queue", "mail")

        def result() -> Any:
            jobs = said(unstuck(tmp_path, "jobs", "--json", "--status", "completed"))["jobs"]
            return jobs and jobs[0]["result"]

        assert until(result, 30, "the new code to run", worker.log) == "new: 1 to ann"
        worker.terminate()
        assert worker.wait(20) == 0


def test_the_demo_accounts_for_every_job(tmp_path: Path) -> None:
    env = os.environ | {"TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-m", "unstuck", "demo", "--json"]
    answer = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=90, check=False)
    assert answer.stdout, answer.stderr
    told = json.loads(answer.stdout)
    assert (told["wrong"], answer.returncode) == ([], 0), answer.stdout
    numbers = told["numbers"]
    assert (numbers["enqueued"], numbers["completed"], numbers["lost"], numbers["stuck"]) == (
        "2000",
        "1959",
        "0",
        "0",
    )
    assert int(numbers["recovered after the kill"]) > 0
    assert int(numbers["zombie writes refused"]) > 0
    assert float(numbers["seconds"]) < 60
    assert list(tmp_path.iterdir()) == [], "it left something behind"
