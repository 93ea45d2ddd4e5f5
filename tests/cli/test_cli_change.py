"""Verbs that change jobs: by id or by filter, said beforehand, refused in one line."""

from pathlib import Path

import pytest
from support.command import STORE, TASKS, Answer, Command, said

pytestmark = pytest.mark.slow
NOBODY = "no worker takes it: start one, unstuck worker MODULE:APP --queue"


@pytest.fixture
def ids(run: Command) -> list[str]:
    """Three jobs of the queue mail, and two dead letters of the default queue."""
    ids = [
        run("enqueue", "send", f'{{"to": "{name}"}}', "--queue", "mail").stdout.strip()
        for name in ("a", "b", "c")
    ]
    for _ in range(2):
        run("enqueue", "fail")
    assert (
        run("worker", "tasks:app", "--burst", "--queue", "default", "--store", "sqlite:///jobs.db").returncode
        == 0
    )
    return ids


def refused(answer: Answer, *words: str) -> None:
    assert (answer.returncode, answer.stdout) == (2, "")
    [line] = answer.stderr.splitlines()
    for word in words:
        assert word in line


def statuses(run: Command) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in said(run("jobs", "--json", "--limit", "100"))["jobs"]:
        key = f"{job['queue']} {job['status']}"
        counts[key] = counts.get(key, 0) + 1
    return counts


def test_dead_letters_are_listed_with_their_cause(run: Command, ids: list[str]) -> None:
    dead = said(run("dead", "--json"))["jobs"]
    assert [(job["task"], job["error"]["code"]) for job in dead] == [("fail", "permanent")] * 2
    assert "no such entity" in run("dead").stdout
    assert run("dead", "--queue", "mail", "--json").stdout.count('"id"') == 0


def test_many_are_changed_only_after_their_number_was_shown(run: Command, ids: list[str]) -> None:
    refused(run("retry"), "no job is named", "--all")
    refused(run("retry", "--all"), "2 jobs would be retried", "--yes", "--dry-run")
    assert said(run("retry", "--all", "--dry-run", "--json")) == {"would_be_retried": 2}
    assert statuses(run) == {"mail pending": 3, "default failed": 2}

    assert said(run("retry", "--all", "--yes", "--json")) == {"retried": 2}
    assert statuses(run) == {"mail pending": 3, "default pending": 2}


def test_a_filter_leaves_others_alone(run: Command, ids: list[str]) -> None:
    assert run("retry", "--code", "other", "--yes").stdout == "retried 0 jobs\n"
    assert run("cancel", "--queue", "mail", "--task", "nothing", "--yes").stdout == "cancelled 0 jobs\n"
    assert run("cancel", "--queue", "mail", "--yes").stdout == "cancelled 3 jobs\n"
    assert run("retry", "--older-than", "1h", "--yes").stdout == "retried 0 jobs\n"
    assert statuses(run) == {"mail failed": 3, "default failed": 2}
    assert run("retry", "--all", "--dry-run").stdout == "2 jobs would be retried (2 permanent)\n", (
        "cancelled jobs are no dead letters"
    )


def test_jobs_named_by_their_ids_must_fit(run: Command, ids: list[str]) -> None:
    refused(run("retry", ids[0]), ids[0], "is pending", "only finished jobs")
    assert run("cancel", ids[0]).stdout == "cancelled 1 job\n"
    refused(run("cancel", ids[0], ids[1]), ids[0], "failed already")
    refused(run("retry", "nothing"), "no job has the id 'nothing'")
    refused(run("retry", ids[0], "--task", "send"), "exclude each other")
    assert run("retry", ids[0]).stdout == "retried 1 job\n"
    assert statuses(run) == {"mail pending": 3, "default failed": 2}


def test_waiting_jobs_can_be_edited(run: Command, ids: list[str]) -> None:
    assert (
        run("edit", ids[1], "--priority", "7", "--run-at", "2040-01-01T00:00:00+00:00").stdout
        == "edited 1 job\n"
    )
    job = said(run("job", ids[1], "--json"))["job"]
    assert (job["priority"], job["run_at"][:10]) == (7, "2040-01-01")
    assert run("edit", ids[1], "--run-at", "now").returncode == 0
    assert said(run("job", ids[1], "--json"))["job"]["run_at"][:4] != "2040"
    assert [event["type"] for event in said(run("job", ids[1], "--json"))["events"]] == ["edited", "edited"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["nothing to edit"]),
        (["--priority", "10"], ["priority is 10", "0 to 9"]),
        (["--priority", "high"], ["priority", "'high'"]),
        (["--run-at", "soon"], ["--run-at 'soon'", "2027-01-31T08:00:00+01:00"]),
        (["--run-at", "2027-01-31T08:00:00"], ["no time zone"]),
        (["--run-at", "9999-01-01T00:00:00+00:00"], ["out of range"]),
    ],
)
def test_a_wrong_edit_changes_nothing(
    run: Command, ids: list[str], options: list[str], words: list[str]
) -> None:
    before = said(run("job", ids[0], "--json"))["job"]
    refused(run("edit", ids[0], *options), *words)
    assert said(run("job", ids[0], "--json"))["job"] == before


def test_what_a_worker_holds_can_be_given_back(run: Command, ids: list[str], tmp_path: Path) -> None:
    import asyncio

    from unstuck import open_store
    from unstuck.protocol.leases import Share

    async def lease() -> None:
        async with open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
            for owner in ("w1", "w2"):
                await store.lease({"mail": Share(60.0, 1)}, 1, owner)

    asyncio.run(lease())
    assert run("release", *ids, "--owner", "w1").stdout == "released 1 job\n"
    assert run("release", "--owner", "nobody").stdout == "released 0 jobs\n"
    assert run("release", "--owner", "w2").stdout == "released 1 job\n"
    refused(run("release", ids[0]), "--owner")
    assert statuses(run) == {"mail pending": 3, "default failed": 2}


def test_old_jobs_are_deleted_and_waiting_ones_never(run: Command, ids: list[str]) -> None:
    refused(run("clean", "--days", "0"), "2 jobs would be deleted", "--yes")
    assert run("clean", "--yes").stdout == "deleted 0 jobs\n"
    refused(run("clean", "--days", "-1", "--yes"), "days is -1", "0 to 3660")
    assert run("clean", "--days", "0", "--yes").stdout == "deleted 2 jobs\n"
    assert statuses(run) == {"mail pending": 3}


def test_pause_and_resume_and_what_explain_shows(run: Command, ids: list[str]) -> None:
    assert run("pause", "mail", "--why", "the provider is down").returncode == 0
    told = said(run("explain", ids[0], "--json"))
    assert told["explain"].startswith("Queue 'mail' is paused: the provider is down.")
    assert told["facts"]["status"] == "pending"
    assert run("resume", "mail").stdout == f"queue mail is open again\n{NOBODY} mail\n"
    assert run("resume", "mail").stdout == f"queue mail was not paused\n{NOBODY} mail\n"
    assert "No worker takes queue 'mail'" in run("explain", ids[0]).stdout
    refused(run("explain", "nothing"), "no job has the id 'nothing'")


def test_a_queue_that_nobody_has_used_is_paused_only_if_that_is_meant(run: Command, ids: list[str]) -> None:
    refused(run("pause", "mial"), "queue 'mial' is not known", "did you mean 'mail'?", "--new")
    assert "mial" not in run("status").stdout

    assert run("pause", "mial", "--new").stdout == "queue mial is paused: paused by hand\n"
    assert run("resume", "mial").stdout == f"queue mial is open again\n{NOBODY} mial\n"


def test_a_queue_whose_jobs_are_gone_or_that_only_a_worker_knows_is_known(
    run: Command, ids: list[str], tmp_path: Path
) -> None:
    assert run("clean", "--days", "0", "--queue", "default", "--yes").stdout == "deleted 2 jobs\n"
    (tmp_path / "press.py").write_text(TASKS.replace('"mail"', '"press"'))
    assert run("worker", "press:app", "--store", STORE, "--queue", "press", "--burst").returncode == 0

    assert run("pause", "default").returncode == 0
    assert run("pause", "press").returncode == 0


def test_a_misspelt_queue_is_reported_when_its_jobs_are_looked_for(run: Command, ids: list[str]) -> None:
    for verb in ("jobs", "dead"):
        answer = run(verb, "--queue", "mial", "--json")

        assert said(answer) == {"jobs": [], "cursor": None}
        assert answer.stderr == (
            "unstuck: queue 'mial' is not known, nobody has used it yet (did you mean 'mail'?)\n"
        )
        assert run(verb, "--queue", "mail").stderr == ""
