"""Waiting for facts, beside an event loop and without one."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from support.processes import Child, until, until_async

TALKER = [sys.executable, "-c", "import time; print('last words', flush=True); time.sleep(60)"]


class Countdown:
    """Answers something true when it was asked often enough."""

    def __init__(self, left: int) -> None:
        self.left = left

    def ask(self) -> str | None:
        self.left -= 1
        return None if self.left else "now"

    async def ask_async(self) -> str | None:
        return self.ask()


def test_the_answer_that_was_waited_for_is_returned() -> None:
    assert until(Countdown(3).ask, 5, "the third time") == "now"


def test_an_overdue_wait_names_what_it_waited_for_and_the_end_of_the_log(tmp_path: Path) -> None:
    with Child(TALKER, tmp_path / "log") as child:
        child.until_line("last words")
        with pytest.raises(AssertionError, match=r"(?s)for a miracle; last answer: 0.*last words"):
            until(lambda: 0, 0.03, "a miracle", child.log)
        with pytest.raises(AssertionError, match=r"(?s)'never' from <Child.*last words"):
            child.until_line("never", timeout=0.03)


def test_a_log_that_is_not_there_does_not_hide_the_reason(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"(?s)for a miracle.*no log"):
        until(lambda: 0, 0.03, "a miracle", tmp_path / "log")


@pytest.mark.anyio
async def test_predicates_may_be_async() -> None:
    assert await until_async(Countdown(3).ask, 5, "the third time") == "now"
    assert await until_async(Countdown(3).ask_async, 5, "the third time") == "now"


@pytest.mark.anyio
async def test_a_predicate_that_hangs_is_overdue_too() -> None:
    with pytest.raises(AssertionError, match="for an answer"):
        await until_async(lambda: asyncio.sleep(60, True), 0.03, "an answer")


@pytest.mark.anyio
@pytest.mark.parametrize("asks", ["at once", "the loop"])
async def test_time_in_which_nobody_could_look_does_not_count(asks: str) -> None:
    """As on a machine that has others to run: all that was due meanwhile is late, the deadline included."""
    done = asyncio.create_task(asyncio.sleep(0.05))
    asyncio.get_running_loop().call_later(0.02, time.sleep, 0.5)

    async def ask() -> bool:
        await asyncio.sleep(0.03)
        return done.done()

    assert await until_async(done.done if asks == "at once" else ask, 0.2, "what comes soon")


def test_time_in_which_we_were_not_run_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep, pauses = time.sleep, [0.5]
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(pauses.pop() if pauses else seconds))

    assert until(Countdown(4).ask, 0.2, "the fourth time") == "now"


@pytest.mark.anyio
async def test_a_predicate_may_time_out_by_itself() -> None:
    async def query() -> bool:
        raise TimeoutError("statement timeout")

    with pytest.raises(TimeoutError, match="statement timeout"):
        await until_async(query, 5, "an answer")


@pytest.mark.anyio
async def test_the_event_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    turn = asyncio.create_task(asyncio.sleep(0))
    assert await until_async(turn.done, 5, "a turn of the event loop")

    with Child(TALKER, tmp_path / "log") as child:
        assert await child.until_line_async("last words") == "last words"
