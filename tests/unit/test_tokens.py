"""RateLimits by themselves: which tokens they ask for, keep, use and give back, and when a queue is left alone."""

import asyncio
import logging
import re
import time
from itertools import permutations
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.spy import Asked, Book, Spied
from support.waiting import until_async

from unstuck import Policy, Rate, StoreError, StoreUnavailable
from unstuck.protocol.limits import Grant
from unstuck.protocol.store import Store
from unstuck.testing import SQLiteHarness
from unstuck.worker import rate_limits as module
from unstuck.worker.rate_limits import LEAST, RateLimits

pytestmark = pytest.mark.anyio
LONG = 3600.0
SLACK = 60.0  # seconds that a start may take here: nothing is late on a busy machine
PLAIN, RATED = Policy(), Policy(rate=Rate(3, per=LONG))


def closures(book: Book) -> list[tuple[str, float]]:
    """The buckets that a store was asked to close, and for how many seconds."""
    return [(call.args[0], call.named["close_for"]) for call in book.of("give_back") if call.named]


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def store(harness: SQLiteHarness, book: Book) -> Store:
    return cast(Store, Spied(harness.store, book))


@pytest.fixture
def limits(store: Store) -> RateLimits:
    limits = RateLimits(store, {"q": RATED, "plain": PLAIN})
    limits._slack["q"] = SLACK
    return limits


def let_expire(limits: RateLimits, bucket: str = "q") -> None:
    """All tickets that are out waited too long for their start."""
    limits._tickets[bucket] = [ticket._replace(until=0.0) for ticket in limits._tickets[bucket]]


@pytest.mark.parametrize("order", list(permutations("ab")), ids="-".join)
async def test_of_two_rates_of_one_bucket_the_stricter_holds(
    store: Store, book: Book, order: tuple[str, ...]
) -> None:
    rates = {"a": Rate(5, per=20.0, bucket="both"), "b": Rate(2, per=10.0, bucket="both")}
    limits = RateLimits(store, {name: Policy(rate=rates[name]) for name in order} | {"plain": PLAIN})

    assert await limits.take(["a", "b", "plain"], 9) == {"a": 2, "b": 2}
    assert [call.args for call in book.of("take")] == [("both", 9, 2, pytest.approx(20.4))]


@pytest.mark.parametrize(("per", "slack"), [(0.5, 0.05), (10.0, 0.2), (LONG, 1.0)])
async def test_a_token_stays_out_for_the_interval_and_the_little_that_its_start_may_take(
    store: Store, book: Book, per: float, slack: float
) -> None:
    limits = RateLimits(store, {"q": Policy(rate=Rate(1, per=per))})
    before = time.monotonic()
    assert await limits.take(["q"], 1) == {"q": 1}
    after = time.monotonic()

    assert [call.args for call in book.of("take")] == [("q", 1, 1, pytest.approx(per + slack))]
    [ticket] = limits._tickets["q"]
    assert before + slack <= ticket.until <= after + slack


async def test_each_ticket_is_good_for_one_start(limits: RateLimits) -> None:
    await limits.take(["q"], 1)
    await limits.take(["q"], 1)

    assert [limits.use("q") is not None for _ in range(3)] == [True, True, False]


async def test_a_good_ticket_is_used_although_an_older_one_is_not_good_any_more(limits: RateLimits) -> None:
    await limits.take(["q"], 1)
    let_expire(limits)
    await limits.take(["q"], 1)

    assert [limits.use("q") is not None for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("slack", "longer"), [(0.5, 1.0), (20.0, 30.0)])
async def test_who_was_too_slow_lets_tokens_stay_out_twice_as_long_up_to_a_bound(
    store: Store, book: Book, slack: float, longer: float
) -> None:
    limits = RateLimits(store, {"q": Policy(rate=Rate(3, per=10.0))})
    limits._slack["q"] = slack
    await limits.take(["q"], 1)
    let_expire(limits)
    assert not limits.use("q")
    await limits.take(["q"], 1)

    assert [call.args[3] for call in book.of("take")] == [10.0 + slack, 10.0 + longer]


async def test_who_had_no_ticket_at_all_was_not_too_slow(limits: RateLimits, book: Book) -> None:
    assert not limits.use("q")
    await limits.take(["q"], 1)

    assert [call.args[3] for call in book.of("take")] == [LONG + SLACK]


async def test_tickets_that_were_not_used_are_given_back_once(limits: RateLimits, book: Book) -> None:
    await limits.take(["q"], 3)
    limits.use("q")
    [first, _] = limits._tickets["q"]
    await limits.give_back()
    await limits.give_back()

    assert [call.args for call in book.of("give_back")] == [("q", 2, first.stamp)]
    assert not limits.use("q")
    assert await limits.take(["q"], 3) == {"q": 2}


async def test_a_caller_that_wants_nothing_does_not_ask(limits: RateLimits, book: Book) -> None:
    assert await limits.take(["q"], 0) == {"q": 0}
    assert book.of("take") == []
    assert limits.open("q")


async def test_a_queue_that_had_no_job_is_left_alone_for_a_moment(
    limits: RateLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EMPTY", 30.0)
    assert limits.open("q")
    limits.nothing("q")

    assert (limits.open("q"), limits.open("plain"), limits.closed("q")) == (False, True, False)
    limits._quiet["q"] -= 30.0
    assert limits.open("q")


async def test_a_queue_without_a_token_is_closed_until_it_is_worth_asking_again(
    limits: RateLimits, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN", 30.0)
    caplog.set_level(logging.INFO)
    assert await limits.take(["q"], 3) == {"q": 3}
    assert (limits.next_open(), caplog.messages) == (None, [])
    assert await limits.take(["q"], 1) == {"q": 0}

    assert (limits.closed("q"), limits.open("q"), limits.closed("plain")) == (True, False, False)
    assert 10 < (limits.next_open() or 0.0) <= 30
    [told] = caplog.records
    assert re.fullmatch(
        r"no token is left of 3 in 3600 s: jobs of q start again in 36\d\d\.\d s at the latest",
        told.getMessage(),
    )
    assert (vars(told)["bucket"], vars(told)["queues"]) == ("q", ["q"])


async def test_that_there_is_no_token_is_reported_once_a_minute(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rate = Rate(1, per=LONG, bucket="both")
    limits = RateLimits(store, {"a": Policy(rate=rate), "b": Policy(rate=rate), "c": RATED})
    for _ in range(3):
        await limits.take(["a"], 1)
    assert [vars(record)["queues"] for record in caplog.records] == [["a", "b"]]

    limits._logged["both"] -= module.LOG_EVERY - 30
    await limits.take(["a"], 1)
    assert len(caplog.records) == 1
    limits._logged["both"] -= 30
    await limits.take(["a"], 1)
    assert len(caplog.records) == 2


async def test_a_token_that_returns_soon_is_waited_for_no_longer_than_that(store: Store) -> None:
    limits = RateLimits(store, {"q": Policy(rate=Rate(1, per=0.3))})
    await limits.take(["q"], 1)
    await limits.take(["q"], 1)

    assert (limits.next_open() or 0.0) <= 0.35


async def test_having_no_token_does_not_open_what_the_other_side_closed_for_longer(
    limits: RateLimits,
) -> None:
    await limits.take(["q"], 3)
    limits.close("q", 100.0)
    await limits.take(["q"], 1)
    await limits.finish(10.0)

    assert 50 < (limits.next_open() or 0.0) <= 100


async def test_closing_a_queue_closes_its_bucket_for_everybody(store: Store, book: Book) -> None:
    rate = Rate(1, per=LONG, bucket="both")
    limits = RateLimits(store, {"a": Policy(rate=rate), "b": Policy(rate=rate), "c": RATED})
    limits.close("a", 50.0)
    limits.close("a", 5.0)  # does not open it sooner

    assert [limits.closed(name) for name in "abc"] == [True, True, False]
    assert 20 < (limits.next_open() or 0.0) <= 50
    await limits.finish(10.0)
    assert closures(book) == [("both", 50.0), ("both", 5.0)]
    await until_async(lambda: not limits._notices, 5, "what was told to be forgotten")
    limits._closed["both"] = time.monotonic() - 0.001
    assert (limits.closed("a"), limits.next_open()) == (False, None)


async def test_the_first_queue_to_open_is_waited_for(limits: RateLimits) -> None:
    limits.close("plain", 50.0)
    limits.close("other", 20.0)

    assert 5 < (limits.next_open() or 0.0) <= 20


async def test_a_queue_without_a_rate_is_closed_alone_whatever_buckets_are_called(
    store: Store, book: Book
) -> None:
    limits = RateLimits(store, {"plain": PLAIN, "q": Policy(rate=Rate(1, bucket="plain"))})
    limits.close("plain", 50.0)
    await limits.finish(10.0)

    assert (limits.closed("plain"), limits.closed("q")) == (True, False)
    assert closures(book) == [("queue plain", 50.0), ("any queue", 50.0)]


async def test_what_others_closed_is_asked_for_now_and_then_and_in_one_call_mostly(
    store: Store, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK", 30.0)
    limits = RateLimits(store, {"a": PLAIN, "b": PLAIN, "q": RATED})
    await limits.ask()
    await limits.ask()
    assert [call.args for call in book.of("take")] == [("any queue",)]

    other = RateLimits(store, {"b": PLAIN})
    other.close("b", 50.0)
    await other.finish(10.0)
    await limits.ask()
    assert not limits.closed("b")
    limits._asked -= 30.0
    await limits.ask()
    assert [limits.closed(name) for name in "abq"] == [False, True, False]
    assert 20 < (limits.next_open() or 0.0) <= 50


async def test_a_worker_whose_queues_all_have_rates_asks_nothing(store: Store, book: Book) -> None:
    await RateLimits(store, {"q": RATED}).ask()

    assert book.asked == []


async def test_that_others_could_not_be_informed_is_logged_and_we_stay_away_all_the_same(
    limits: RateLimits, book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    book.fails["give_back"] = StoreError("it is away")
    limits.close("q", 50.0)
    await limits.finish(10.0)

    assert caplog.messages == ["other workers could not be asked to leave q alone: it is away"]
    assert limits.closed("q")


async def test_a_further_call_of_a_queue_without_a_rate_needs_no_token(
    limits: RateLimits, book: Book
) -> None:
    await limits.one("plain")

    assert book.of("take") == []


async def test_a_further_call_waits_for_a_token_of_its_own_and_no_longer(
    store: Store, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = RateLimits(store, {"q": Policy(rate=Rate(1, per=0.3))})
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))  # no answer comes too late
    began = time.monotonic()
    await limits.one("q")
    await limits.one("q")

    assert time.monotonic() - began >= 0.3
    asked = [call.args for call in book.of("take")]
    assert asked == [("q", 1, 1, pytest.approx(0.35))] * len(asked)
    assert len(asked) < 10
    assert all(0 < pause <= 0.35 for pause in pauses)
    assert limits._tickets["q"] == []


async def test_a_further_call_waits_for_a_store_that_is_away(
    limits: RateLimits, book: Book, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.02)
    book.fails["take"] = StoreUnavailable("it is away")
    waiting = asyncio.create_task(limits.one("q"))
    await until_async(lambda: len(caplog.messages) >= 2, 10, "a second try")
    book.fails.clear()
    await asyncio.wait_for(waiting, 10)

    assert set(caplog.messages) == {"no token could be had for q, will try again: it is away"}


async def test_a_token_that_waited_too_long_for_its_start_is_not_used(
    harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("unstuck.worker.rate_limits.time", SimpleNamespace(monotonic=lambda: now))
    limits = RateLimits(harness.store, {"q": Policy(rate=Rate(2, per=1.0))})
    assert await limits.take(["q"], 2) == {"q": 2}
    now += 0.99 * LEAST
    assert limits.use("q")
    now += 0.02 * LEAST

    # Started now, it would be within the interval after the one that takes its place.
    assert not limits.use("q")


async def test_a_token_for_a_further_call_that_came_too_late_is_not_used(
    harness: SQLiteHarness, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call would begin long after the store counted it, and the next ones only as long after that."""
    now = 1000.0
    monkeypatch.setattr("unstuck.worker.rate_limits.time", SimpleNamespace(monotonic=lambda: now))

    class Slow(Spied):
        async def take(self, *args: Any) -> Grant:
            nonlocal now
            book.asked.append(Asked("take", args, now))
            now += 3 * LEAST
            return await harness.store.take(*args)

    limits = RateLimits(cast(Store, Slow(harness.store, book)), {"q": Policy(rate=Rate(1, per=LONG))})
    limits._slack["q"] = LEAST
    await limits.one("q")

    assert [call.args[-1] - LONG for call in book.of("take")] == pytest.approx([LEAST, 2 * LEAST, 4 * LEAST])
    assert [call.args[:2] for call in book.of("give_back")] == [("q", 1)] * 2
    assert (await harness.store.take("q", 1, 1, LONG)).granted == 0
