"""`unstuck schedules` as people run it: the table, and its verbs with good and with wrong input."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.command import STORE, Command, on_a_terminal, said

from unstuck import Jobs, Scheduler, WorkerInfo, open_store
from unstuck.testing.conformance.stored_schedules import DECLARED

pytestmark = [pytest.mark.slow]


@pytest.fixture
def store(run: Command) -> Command:
    """The command on a store that exists."""
    assert run("init").returncode == 0
    return run


def test_a_schedule_lives_from_add_to_delete(store: Command) -> None:
    added = said(
        store("schedules", "add", "daily", "--task", "send", "--cron", "30 2 * * *", "--tz", "Europe/Berlin",
              "--args", '{"to": "ann"}', "--app", "tasks:app", "--catch-up", "none", "--priority", "2", "--json")
    )  # fmt: skip
    assert (added["queue"], added["arguments"]) == ("mail", {"to": "ann", "count": 1})
    assert (added["cron"], added["tz"], added["catch_up"]) == ("30 2 * * *", "Europe/Berlin", "none")
    assert (added["declared"], added["paused"], added["fired_by"]) == (False, None, [])
    assert added["next_slot"] > added["last_slot"]

    version = str(added["version"])
    changed = said(store("schedules", "change", "daily", "--every", "90s", "--version", version, "--json"))
    assert (changed["every"], changed["cron"], changed["tz"]) == (90.0, None, "UTC")
    late = store("schedules", "change", "daily", "--every", "2h", "--version", version)
    assert (late.returncode, late.stdout) == (2, "")
    assert late.stderr.startswith(
        f"unstuck: schedule 'daily' has version {changed['version']}, not {version}"
    )

    assert (
        store("schedules", "pause", "daily", "--why", "year end").stdout
        == "schedule daily is paused: year end\n"
    )
    assert said(store("schedules", "--json"))[0]["paused"] == "year end"
    ran = said(store("schedules", "run", "daily", "--json"))
    [job] = said(store("jobs", "--json"))["jobs"]
    assert (job["id"], job["queue"], job["priority"], job["payload"]["to"]) == (ran["id"], "mail", 2, "ann")
    assert store("schedules", "resume", "daily").stdout == "schedule daily fires again\n"
    assert store("schedules", "resume", "daily").stdout == "schedule daily was not paused\n"
    shown = store("schedules", "show", "daily").stdout
    assert 'arguments  {"to": "ann", "count": 1}\n' in shown
    assert "when       every 90s\n" in shown

    assert store("schedules", "delete", "daily").stdout == "schedule daily is deleted\n"
    assert said(store("schedules", "--json")) == []
    assert (
        store("schedules", "show", "daily").stderr
        == "unstuck: no schedule is named 'daily' (there are none)\n"
    )


def test_the_table_shows_what_code_declares_beside_what_was_added(store: Command, tmp_path: Path) -> None:
    async def begin() -> None:
        async with open_store(f"sqlite:///{tmp_path}/jobs.db") as opened:
            for id_ in "ab":
                worker = WorkerInfo(
                    id=id_, queues=("q",), tasks=("task",), schedules=("s",), fires_stored=True
                )
                await opened.heartbeat(worker, [])
            await Scheduler(opened, [DECLARED]).look()
            jobs = Jobs(opened)
            await jobs.add_schedule("mails", "task", cron="0 0 29 2 *", queue="q")
            await jobs.pause_schedule("mails", "year end")
            await jobs.pause_schedule("s")
            await jobs.resume_schedule("s")

    asyncio.run(begin())

    code, text = on_a_terminal(tmp_path, "schedules", "--store", STORE)

    head, mails, s = (line.split("  ") for line in text.splitlines())
    assert (code, [cell.strip() for cell in head if cell.strip()]) == (
        0,
        ["SCHEDULE", "WHEN", "TASK", "NEXT", "LAST", "FIRED BY", "NOTE"],
    )
    assert [cell.strip() for cell in mails if cell.strip()][1:3] == ["0 0 29 2 *", "task"]
    assert mails[-1] == "made at run time; paused: year end"
    assert [cell.strip() for cell in s if cell.strip()][:3] == ["s", "every 30d", "task"]
    assert s[-1] == "2 workers"
    assert max(len(line) for line in (text.splitlines()[0], text.splitlines()[2])) <= 80


@pytest.mark.parametrize(
    ("args", "reported"),
    [
        ("add x --task send", "schedule 'x': it needs either cron or every"),
        ("add x --every 1h", "Missing option '--task'"),
        ("add x --task send --every 0", "schedule 'x': every is 0.0"),
        ("add x --task send --every soon", "'soon' is not a length of time"),
        ("add x --task send --cron 5", "schedule 'x': cron '5' has 1 field"),
        ("add x --task send --every 60 --tz Europe/Berlin", "intervals know no time zone"),
        ("add x --task send --every 60 --args [1]", "--args is a JSON list"),
        ("add x --task send --every 60 --args {", "--args is not valid JSON"),
        ("add x --task send --every 60 --max-attempts 0", "max-attempts is 0"),
        ("add x --task sned --every 60 --app tasks:app", "the app has no task 'sned' (did you mean 'send'?)"),
        ("add x --task send --every 60 --app tasks:app", "task 'send': missing a required argument: 'to'"),
        ("add / --task send --every 60", "schedule name '/' is not allowed"),
        ("add daily --task send --every 60", "schedule 'daily' exists already: change or delete it"),
        ("change daily", "nothing is to be changed: give --cron"),
        ("change daily --cron nonsense", "cron 'nonsense' has 1 field"),
        ("change dialy --every 60", "no schedule is named 'dialy' (did you mean 'daily'?)"),
        ("pause dialy", "no schedule is named 'dialy' (did you mean 'daily'?)"),
        ("resume dialy", "no schedule is named 'dialy'"),
        ("run dialy", "no schedule is named 'dialy'"),
        ("delete dialy", "no schedule is named 'dialy'"),
        ("delete daily --version 5", "schedule 'daily' has version"),
        ("pasue daily", "No such command 'pasue'"),
        ("--json pause daily", "options come last: unstuck schedules pause"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line(daily: Any, args: str, reported: str) -> None:
    answer = daily("schedules", *args.split())

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert reported in answer.stderr


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The command on a store with one schedule, which wrong input does not change."""
    from support.command import TASKS, unstuck

    folder = tmp_path_factory.mktemp("daily")
    (folder / "tasks.py").write_text(TASKS)
    unstuck(folder, "init")
    unstuck(folder, "schedules", "add", "daily", "--task", "report", "--every", "1d")
    return lambda *args: unstuck(folder, *args)
