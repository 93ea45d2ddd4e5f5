"""Which queues a worker takes, and in which order: the option, the variable and the file."""

import json
import re
from pathlib import Path

import pytest
from support.command import unstuck

from unstuck import ConfigError
from unstuck.cli.settings import load
from unstuck.config.turns import parse_queues

APP = """
from unstuck import Unstuck
app = Unstuck("sqlite:///jobs.db")

@app.task(queue="urgent")
async def ring(number: int) -> None:
    print("urgent", flush=True)

@app.task(queue="bulk")
async def move(number: int) -> None:
    print("bulk", flush=True)
"""
FORMS = "a,b for strict order or a=5,b=1 for weights"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    monkeypatch.chdir(tmp_path)


def test_names_are_a_strict_order_and_names_with_numbers_are_weights() -> None:
    assert parse_queues("queues", "urgent, bulk") == (["urgent", "bulk"], "strict")
    assert parse_queues("queues", "urgent=5,bulk=1") == ({"urgent": 5, "bulk": 1}, "fair")
    assert parse_queues("queues", "7") == (["7"], "strict")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a=5,b", f"queues is 'a=5,b': give every queue a weight or none, {FORMS}"),
        ("a=0,b=1", "queues: the weight of 'a' is 0: it must be a whole number from 1 to 1000"),
        ("a=1001", "queues: the weight of 'a' is 1001: it must be a whole number from 1 to 1000"),
        ("a=1.5", "queues: the weight of 'a' is '1.5': it must be a whole number from 1 to 1000"),
        ("a=x", "queues: the weight of 'a' is 'x': it must be a whole number from 1 to 1000"),
        ("a=", "queues: the weight of 'a' is '': it must be a whole number from 1 to 1000"),
        ("a,b,a", "queues names 'a' twice: name each queue once"),
        ("", f"queues is '': it must be a text, {FORMS}"),
        (["a"], f"queues is ['a']: it must be a text, {FORMS}"),
    ],
)
def test_an_order_that_is_none_is_refused_with_what_to_write(text: object, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_queues("queues", text)

    assert str(caught.value) == why


@pytest.mark.parametrize("text", ["a,,b", ",", "a b", "=5", "a;b"])
def test_what_is_no_name_of_a_queue_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"queue name .* is not allowed: 1 to 100 letters"):
        parse_queues("queues", text)


def test_the_option_wins_over_the_variable_over_the_file(caplog: pytest.LogCaptureFixture) -> None:
    Path("unstuck.toml").write_text('[worker]\nqueues = "a=5,b=1"\n')

    assert load(None, {}).queues == ({"a": 5, "b": 1}, "fair")
    with caplog.at_level("INFO", "unstuck.settings"):
        assert load(None, {"UNSTUCK_QUEUES": "12"}).queues == (["12"], "strict")
    assert caplog.messages == [
        "the environment overrides unstuck.toml: queues is '12' by UNSTUCK_QUEUES, not 'a=5,b=1'"
    ]
    assert load(None, {"UNSTUCK_QUEUES": "b"}, queues="a,b").queues == (["a", "b"], "strict")


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_keeps_the_order_it_was_given(tmp_path: Path, processes: str) -> None:
    for task, queue in (("move", "bulk"), ("ring", "urgent")):
        for _ in range(4):
            unstuck(tmp_path, "enqueue", task, '{"number": 1}', "--queue", queue)

    ran = unstuck(
        tmp_path, "worker", "tasks:app", "--queues", "urgent,bulk", "--burst", "--processes", processes,
        "--concurrency", "1",
    )  # fmt: skip

    assert (ran.returncode, ran.stdout.split()) == (0, ["urgent"] * 4 + ["bulk"] * 4)
    told = [json.loads(line)["message"] for line in ran.stderr.splitlines()]
    assert any("takes urgent, bulk in this order, 1 at a time" in message for message in told)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--queues", "urgent=5,bulk"), r"queues is 'urgent=5,bulk': give every queue a weight or none"),
        (("--queues", "urgent,urgnt"), r"no task of this app uses queue 'urgnt': it has bulk, urgent"),
        (("--queue", "urgent", "--queues", "bulk"), r"--queue and --queues both name its queues: choose one"),
    ],
)
def test_a_worker_refuses_queues_that_it_cannot_take_in_one_line(
    tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    ran = unstuck(tmp_path, "worker", "tasks:app", *options, "--processes", "0")

    assert ran.returncode == 2
    [line] = ran.stderr.splitlines()
    assert re.search(why, line)
