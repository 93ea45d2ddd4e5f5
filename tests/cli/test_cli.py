"""The command, run as people run it: its verbs, and one line for whatever is wrong."""

import asyncio
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from support.command import CANARY, NOT_UTF8, STORE, TASKS, Answer, Command, said, unstuck

from unstuck import Jobs, open_store
from unstuck.protocol.leases import Share
from unstuck.testing import SQLiteHarness


def rows(file: Path) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(file))
    found = list(connection.execute("SELECT * FROM job ORDER BY seq"))
    connection.close()
    return found


def test_enqueue_prints_the_id_of_the_new_job(run: Command) -> None:
    plain = run("enqueue", "send", '{"to": "ann"}')
    told = said(run("enqueue", "send", '{"to": "ann"}', "--json"))

    assert (plain.returncode, plain.stderr) == (0, "")
    assert re.fullmatch(r"[0-9a-f-]{32,36}\n", plain.stdout)
    assert told | {"id": "…"} == {"queue": "default", "id": "…", "created": True, "same_content": True}


def test_enqueue_reports_that_a_key_is_taken(run: Command) -> None:
    first, same, other = (
        run("enqueue", "send", payload, "--key", "k") for payload in ('{"n": 1}', '{"n":1}', '{"n": 2}')
    )

    assert same.stdout == first.stdout.strip() + " (existed already)\n"
    assert other.stdout == first.stdout.strip() + " (existed already, with other content)\n"


def test_enqueue_stores_its_options(run: Command) -> None:
    options = [
        "--queue",
        "mail",
        "--priority",
        "7",
        "--max-attempts",
        "9",
        "--run-at",
        "2999-01-31T08:00:00+01:00",
    ]
    number = 2**70 + 1

    made = said(run("enqueue", "send", json.dumps({"n": number}), *options, "--json"))
    job = said(run("job", made["id"], "--json"))["job"]

    assert (job["queue"], job["priority"], job["max_attempts"]) == ("mail", 7, 9)
    assert (job["payload"], job["run_at"]) == ({"n": number}, "2999-01-31T07:00:00Z")


@pytest.mark.parametrize(
    ("said_as", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("7d", 604800)]
)
def test_a_delay_is_written_as_people_write_it(run: Command, said_as: str, seconds: int) -> None:
    made = said(run("enqueue", "send", "--delay", said_as, "--json"))
    job = said(run("job", made["id"], "--json"))["job"]

    created, due = (datetime.fromisoformat(job[name]) for name in ("created_at", "run_at"))
    assert (due - created).total_seconds() == pytest.approx(seconds, abs=0.01)


def test_enqueue_takes_its_retries_from_its_option_and_not_from_the_variables_of_pipelines(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_MAX_ATTEMPTS", "5")
    monkeypatch.setenv("JOB_BACKOFF_MS_BASE", "250")
    monkeypatch.setenv("JOB_MAX_ATTEMPTS", "3x")
    usual, own = (said(run("enqueue", "send", *more, "--json")) for more in ([], ["--max-attempts", "2"]))
    jobs = [said(run("job", made["id"], "--json"))["job"] for made in (usual, own)]
    refused = run("enqueue", "send", "--max-attempts", "0")

    assert [(job["max_attempts"], job["backoff"]) for job in jobs] == [
        (3, [1.0, 2.0, 4.0]),
        (2, [1.0, 2.0, 4.0]),
    ]
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "max-attempts is 0: it must be a whole number from 1 to 1000" in refused.stderr


def test_enqueue_with_an_app_uses_what_the_app_knows_of_the_task(run: Command) -> None:
    made = said(run("enqueue", "send", '{"to": "ann"}', "--app", "tasks:app", "--json"))
    elsewhere = run("enqueue", "fail", "--app", "tasks:app", store=None)
    misspelt = run("enqueue", "sned", "--app", "tasks:app")
    wrong = run("enqueue", "send", '{"too": "ann"}', "--app", "tasks:app")
    twice = run("enqueue", "send", '{"to": "ann"}', "--app", "tasks:app", "--queue", "mail")

    assert made["queue"] == "mail"
    assert said(run("job", made["id"], "--json"))["job"]["payload"] == {"to": "ann", "count": 1}
    assert elsewhere.returncode == 0, "without any other store, the app's own is used"
    listed = said(run("jobs", "--json", "--store", "sqlite:///elsewhere.db", store=None))["jobs"]
    assert [job["task"] for job in listed] == ["fail"]
    assert [answer.returncode for answer in (misspelt, wrong, twice)] == [2, 2, 2]
    assert "the app has no task 'sned' (did you mean 'send'?)" in misspelt.stderr
    assert "missing a required argument: 'to', and there is no 'too'" in wrong.stderr
    assert "leave queue out" in twice.stderr


@pytest.mark.parametrize(
    "wrong", [["--priority", "10"], ["--queue", "a b\n"], ["--app", "tasks:app", "--again"]]
)
def test_what_is_refused_creates_no_store(run: Command, tmp_path: Path, wrong: list[str]) -> None:
    assert run("enqueue", "send", '{"to": "ann"}', *wrong).returncode == 2
    assert not list(tmp_path.glob("*.db"))


def test_jobs_lists_what_is_asked_for_page_by_page(run: Command) -> None:
    for queue in ("mail", "mail", "sums"):
        run("enqueue", "send", "--queue", queue)

    first = said(run("jobs", "--queue", "mail", "--limit", "1", "--json"))
    second = said(run("jobs", "--queue", "mail", "--limit", "1", "--cursor", first["cursor"], "--json"))
    table = run("jobs", "--status", "pending", "--task", "send").stdout.splitlines()

    assert first["jobs"][0]["id"] != second["jobs"][0]["id"]
    assert [line.split()[:4] for line in table[:1]] == [["ID", "QUEUE", "TASK", "STATUS"]]
    assert sorted(line.split()[1] for line in table[1:]) == ["mail", "mail", "sums"]
    assert said(run("jobs", "--status", "failed", "--json")) == {"jobs": [], "cursor": None}


@pytest.mark.accepts("EMB-001")
def test_a_worker_runs_what_is_due_and_the_other_verbs_report_it(run: Command) -> None:
    done = said(run("enqueue", "send", '{"to": "ann"}', "--queue", "mail", "--json"))["id"]
    failed = said(run("enqueue", "fail", "--json"))["id"]

    worker = run("worker", "tasks:app", "--burst", "--store", STORE, store=None)
    job, why = said(run("job", done, "--json")), run("job", failed).stdout
    status = {of["queue"]: (of["completed"], of["failed"]) for of in said(run("status", "--json"))}
    table = run("status").stdout

    assert (worker.returncode, worker.stdout) == (0, "")
    assert {json.loads(line)["logger"] for line in worker.stderr.splitlines()} >= {
        "unstuck.worker",
        "unstuck.reaper",
    }
    assert (job["job"]["status"], job["job"]["result"]) == ("completed", "1 to ann")
    assert re.match(r"It completed \d+\.\d s ago\.", job["explain"])
    assert re.match(r"It failed \d+\.\d s ago after 1 of 3 attempts \(permanent: no such entity", why)
    assert re.search(r"^\d{4}-.* failed  .*code permanent", why, re.MULTILINE), "its events are listed"
    assert status == {"mail": (1, 0), "default": (0, 1)}
    assert table.startswith("QUEUE ")
    assert CANARY not in worker.stderr + why
    assert "\x1b" not in worker.stderr + why


def test_a_worker_uses_the_store_of_its_app_unless_another_is_named(run: Command, tmp_path: Path) -> None:
    answer = run("worker", "tasks:app", "--burst", store=None)

    assert answer.returncode == 0
    assert ((tmp_path / "elsewhere.db").exists(), (tmp_path / "jobs.db").exists()) == (True, False)


def test_reap_recovers_what_a_dead_worker_held(run: Command, tmp_path: Path) -> None:
    async def die_at_work() -> None:
        async with SQLiteHarness(tmp_path) as harness:
            assert await harness.store.lease({"default": Share(20.0, 2)}, 2, "dead")
            await harness.age(60)

    for _ in range(2):
        run("enqueue", "send")
    asyncio.run(die_at_work())

    told = {"recovered": 2, "requeued": 2, "failed": 0, "troubles": [], "expired": 0}
    assert said(run("reap", "--once", "--json")) == told
    assert run("reap", "--once").stdout == "recovered 0 jobs: 0 requeued, 0 failed\n"


@pytest.mark.parametrize(
    "verb", [["jobs"], ["jobs", "--json"], ["job", "{id}"], ["status"], ["enqueue", "send"]], ids=" ".join
)
def test_a_reader_that_hangs_up_is_no_error(verb: list[str], run: Command) -> None:
    made = run("enqueue", "send").stdout.strip()
    reader, writer = os.pipe()
    os.close(reader)

    answer = run(*(word.format(id=made) for word in verb), stdout=writer)
    os.close(writer)

    assert (answer.returncode, answer.stderr) == (0, "")


def test_what_strangers_wrote_is_shown_inert(run: Command, tmp_path: Path) -> None:
    trick = "\x1b[2J\u202e\x9b31m\rroot"

    async def pause() -> None:
        async with open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
            await Jobs(store).pause("mail", trick)

    made = said(run("enqueue", "send", json.dumps({"to": trick}), "--queue", "mail", "--json"))["id"]
    asyncio.run(pause())
    shown = run("job", made).stdout + run("jobs").stdout + run("status").stdout

    assert not set(shown) & {"\x1b", "\u202e", "\x9b", "\r"}
    assert said(run("job", made, "--json"))["job"]["payload"] == {"to": trick}


def test_a_file_of_another_program_is_left_exactly_as_it_was(run: Command, tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "other.db"))
    connection.execute("CREATE TABLE precious (x)")
    connection.close()
    (tmp_path / "notes.txt").write_text("milk, bread\n" * 500)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    answers = [run("enqueue", "send", "--store", f"sqlite:///{name}") for name in ("other.db", "notes.txt")]

    assert [(answer.returncode > 0, answer.stdout, answer.stderr.count("\n")) for answer in answers] == [
        (True, "", 1)
    ] * 2
    assert "belongs to another program" in answers[0].stderr
    assert "/notes.txt' is damaged or not a SQLite database" in answers[1].stderr
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_help_comes_at_once(run: Command) -> None:
    def seconds() -> float:
        began = time.perf_counter()
        answer = run("--help")
        assert (answer.returncode, "Commands:" in answer.stdout) == (0, True)
        return time.perf_counter() - began

    assert min(seconds(), seconds()) < 1.5


MODULES = {
    "tasks": TASKS,
    "division": "1 / 0",
    "syntax": "def (",
    "attribute": "import math\nmath.nothing",
    "needs": "import nowhere_to_be_found",
}
SEND = ["enqueue", "send"]
WRONG: list[tuple[list[str], str]] = [
    ([*SEND, ""], "payload is not valid JSON"),
    ([*SEND, '{"a": '], "payload is not valid JSON: Expecting value at character 6"),
    ([*SEND, "\ufeff{}"], "payload is not valid JSON"),
    ([*SEND, "[1]"], "payload is a JSON list: give the arguments as an object"),
    ([*SEND, '"x"'], "payload is a JSON str"),
    ([*SEND, '{"a": NaN}'], "payload: NaN"),
    ([*SEND, '{"a": 1e999}'], "payload: inf"),
    ([*SEND, '{"a": {"b": 1, "b": 2}}'], "payload: an object names a key twice"),
    ([*SEND, '{"a": ' + "[" * 30_000 + "]" * 30_000 + "}"], "payload is nested too deeply"),
    ([*SEND, '{"a": ' + "9" * 5000 + "}"], "payload: "),
    ([*SEND, '{"a": "\\ud800"}'], "payload: a text has half a surrogate pair"),
    ([*SEND, f'{{"a": "{NOT_UTF8}"}}'], "payload: a text has half a surrogate pair"),
    ([*SEND, '{"a": "\\u0000"}'], "payload: a text contains the NUL character"),
    (["enqueue", "a "], "task name 'a '"),
    (["enqueue", NOT_UTF8], "task name '\\udcff'"),
    ([*SEND, "--queue", "a:b"], "queue name 'a:b'"),
    ([*SEND, "--priority", "10"], "priority is 10: it must be a whole number from 0 to 9"),
    ([*SEND, "--priority", "high"], "priority"),
    ([*SEND, "--delay", "nan"], "delay is nan"),
    (
        [*SEND, "--delay", "5x"],
        "'5x' is not a length of time: write 90s, 15m, 2h or 7d, or a number of seconds",
    ),
    ([*SEND, "--run-at", "tomorrow"], "--run-at 'tomorrow' is not a time"),
    ([*SEND, "--run-at", "2027-06-30T23:59:60+00:00"], "--run-at '2027-06-30T23:59:60+00:00' is not a time"),
    (
        [*SEND, "--run-at", "2027-01-01T00:00:00"],
        "has no time zone: add one, for example tzinfo=UTC, or +00:00",
    ),
    ([*SEND, "--run-at", "2027-01-31T08:00:00+01:00", "--delay", "5"], "delay and run_at both set the time"),
    ([*SEND, "--key", ""], "key ''"),
    ([*SEND, "--key", "k" * 300], "a text of 1 to 255 printable characters"),
    ([*SEND, "--again"], "again=True needs a key"),
    ([*SEND, "--max-attempts", "0"], "max-attempts is 0: it must be a whole number from 1 to 1000"),
    (["enqueue"], "TASK"),
    (["enqeue"], "enqeue"),
    (["jobs", "--lmit", "5"], "--lmit"),
    (["jobs", "--status", "done"], "status"),
    (["jobs", "--limit", "0"], "limit is 0: it must be a whole number from 1 to 1000"),
    (["jobs", "--limit", "all"], "limit"),
    (["jobs", "--cursor", "x"], "cursor 'x' is not a cursor of this listing"),
    (["jobs", "--cursor", "9" * 30], "cursor"),
    (["jobs", "--queue", NOT_UTF8], "queue"),
    (["job", "nope"], "no job has the id 'nope'"),
    (["job", NOT_UTF8], "id"),
    (["status", "--store", ""], "no store is named: use --store sqlite:///jobs.db or set UNSTUCK_STORE"),
    (["status", "--store", "sqlite:///:memory:"], "would be gone with this command: name a file"),
    (["wroker"], "No such command 'wroker' (did you mean 'worker'?)"),
    (["status", "--store", "jobs.db"], "store 'jobs.db' is not known"),
    (["status", "--store", f"mysql://ann:{CANARY}@host/db"], "store 'mysql://ann:[redacted]@host/db'"),
    (["status", "--store", "sqlite:///no/such.db"], "/no' does not exist; create it"),
    (["status", "--store", "sqlite:///."], "Is a directory"),
    (
        ["status", "--store", "sqlite:///misspelt.db"],
        "/misspelt.db' does not exist: name one that does, or",
    ),
    (["verify", "sqlite:///misspelt.db"], "/misspelt.db' does not exist"),
    (["doctor", "sqlite:///misspelt.db"], "/misspelt.db' does not exist"),
    (["reap", "--once", "--store", "sqlite:///misspelt.db"], "/misspelt.db' does not exist"),
    (["status", "--store", "sqlite://["], "store"),
    (["status", "--store", f"sqlite:///{NOT_UTF8}.db"], "store"),
    (["worker"], "MODULE:APP"),
    (["worker", "nope"], "app is 'nope': it must be written as MODULE:APP"),
    (["worker", "nope:app"], "module 'nope' is not found"),
    (["worker", "tasks:nope"], "module 'tasks' has no 'nope'"),
    (["worker", ".tasks:app"], ".tasks"),
    (["worker", "json:dumps"], "is of type function, not an Unstuck"),
    (["worker", "tasks.py:app"], "'tasks.py' is a file, not a module: write 'tasks'"),
    (["worker", "needs:app"], "module 'needs' imports 'nowhere_to_be_found', which is not found; install it"),
    (["worker", "attribute:app"], "nothing"),
    (["worker", "division:app"], "division by zero"),
    (["worker", "syntax:app"], "SyntaxError: invalid syntax (syntax.py, line 1)\n"),
    (
        ["worker", "tasks:app", "--queue", "nope"],
        "no task of this app uses queue 'nope': it has default, mail",
    ),
    (["worker", "tasks:app", "--concurrency", "0"], "concurrency is 0"),
    (["worker", "tasks:app", "--recovery", "nan"], "recovery is nan"),
    (["worker", "tasks:app", "--log-level", "LOUD"], "log-level"),
    (
        ["pause", "defalt"],
        "queue 'defalt' is not known, nobody has used it yet (did you mean 'default'?): use --new",
    ),
    (
        ["pause", "zebra"],
        "queue 'zebra' is not known, nobody has used it yet (there are 'default'): use --new",
    ),
    (["resume", "defalt"], "queue 'defalt' is not known, nobody has used it yet (did you mean 'default'?)\n"),
    (["retry", "--queue", "defalt", "--yes"], "queue 'defalt' is not known"),
    (["cancel", "--queue", "defalt", "--dry-run"], "queue 'defalt' is not known"),
    (["clean", "--queue", "defalt", "--yes"], "queue 'defalt' is not known"),
    (["reap", "--once", "--interval", "-1"], "interval is -1"),
    (["reap", "--once", "--interval", "often"], "'often' is not a length of time: write 90s"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """The answers to all that is wrong, asked side by side in one folder whose store has a job."""
    folder = tmp_path_factory.mktemp("wrong")
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    assert unstuck(folder, "enqueue", "send", '{"to": "ann"}').returncode == 0
    before = rows(folder / "jobs.db")

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda case: unstuck(folder, *case[0]), WRONG))

    assert rows(folder / "jobs.db") == before
    assert not (folder / "misspelt.db").exists()
    return {repr(case[0]): answer for case, answer in zip(WRONG, answers, strict=True)}


@pytest.mark.parametrize(("args", "thing"), WRONG, ids=[ascii(" ".join(args))[1:50] for args, _ in WRONG])
def test_wrong_input_is_reported_in_one_line_that_names_it(
    args: list[str], thing: str, wrong: dict[str, Answer]
) -> None:
    answer = wrong[repr(args)]

    assert (answer.returncode, answer.stdout) == (2, "")
    assert re.fullmatch(r"unstuck: [^\n]{1,500}\n", answer.stderr), answer.stderr[-500:]
    assert thing in answer.stderr
    assert CANARY not in answer.stderr


def test_an_option_that_help_does_not_show_is_not_suggested(run: Command) -> None:
    answer = run("worker", "--unde")

    assert (answer.returncode, answer.stdout) == (2, "")
    assert "--unde'" in answer.stderr
    assert "--under" not in answer.stderr
    assert "--burst" in run("worker", "--burts").stderr


def test_without_a_store_a_verb_shows_how_to_name_one(run: Command) -> None:
    answer = run("status", store=None)

    assert (answer.returncode, answer.stdout) == (2, "")
    told = (
        "no store is named: use --store sqlite:///jobs.db or set UNSTUCK_STORE, or let unstuck.toml say store"
    )
    assert answer.stderr == f"unstuck: {told}\n"


def test_the_bare_command_shows_its_verbs(run: Command) -> None:
    answer = run(store=None)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert "\n  worker      Run the jobs of an app.\n" in answer.stderr


def test_a_worker_on_a_file_that_is_no_database_halts(run: Command, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "jobs.db").write_text("no database at all, but long enough to be taken for one " * 20)

    answer = run("worker", "tasks:app")

    assert (answer.returncode, answer.stdout) == (3, "")
    assert "/jobs.db' is damaged or not a SQLite database" in answer.stderr
