"""At most N starts in any window: that holds for the calls of handlers, however long it took to come to them."""

import asyncio
import math
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from support.spy import Book, Spied
from support.work import burst

from unstuck import Filter, Policy, Rate, Status, Unstuck
from unstuck.app.context import Context
from unstuck.app.handler import Handler
from unstuck.protocol.job import Ending, Job
from unstuck.protocol.leases import Share
from unstuck.recovery.reaper import Reaper
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased
from unstuck.worker.dependencies import Dependencies
from unstuck.worker.execute import Runtime, perform, perform_batch
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.isolation.parent import Isolation
from unstuck.worker.outbox import Outbox
from unstuck.worker.permit import NoToken, Permit, Ticket, Tokens
from unstuck.worker.rate_limits import RateLimits
from unstuck.worker.runners import Runners

pytestmark = pytest.mark.anyio
IMPORTED_BY = os.getpid()
COUNT, PER = 2, 1.0
NOW, NEVER = math.inf, -math.inf  # until when a ticket is good


def shortest(starts: Sequence[float]) -> float:
    """The shortest time in which there was one start more than the rate allows."""
    ordered = sorted(starts)
    return min(after - before for before, after in zip(ordered, ordered[COUNT:], strict=False))


@dataclass
class Laborious:
    """Takes its time to be made, in the process of a job."""

    seconds: float

    def __post_init__(self) -> None:
        if os.getpid() != IMPORTED_BY:
            time.sleep(self.seconds)


def begun(what: Laborious) -> float:
    assert what is not None
    return time.monotonic()


async def begun_async(what: Laborious) -> float:
    assert what is not None
    return time.monotonic()


@pytest.mark.slow
@pytest.mark.parametrize("function", [begun, begun_async])
async def test_a_process_that_comes_late_to_its_call_keeps_the_rate(app: Unstuck, function: Any) -> None:
    task: Any = app.task(function, isolate=True, rate=Rate(COUNT, per=PER))
    calls = [task.call(Laborious(PER if number < COUNT else 0.0)) for number in range(3 * COUNT)]
    handles = await app.enqueue_many(calls)
    await burst(app)

    assert shortest([await handle.result(10) for handle in handles]) >= PER


async def test_the_token_of_a_call_that_waited_for_a_blocked_loop_stays_out_for_an_interval_after_the_call(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    left: list[float] = []

    @app.task(rate=Rate(COUNT, per=PER))
    async def call(blocks: float) -> None:
        now = time.time()
        [(last,)] = harness.rows("SELECT max(free_at) FROM token")
        left.append(last / 1000 - now)
        time.sleep(blocks)

    await app.enqueue_many([call.call(0.5), call.call(0.0)])
    await burst(app)

    assert len(left) == COUNT
    assert min(left) >= PER - 0.001  # the store counts milliseconds


@dataclass
class Exchange:
    """Gives another ticket in place of one, and remembers why."""

    until: float = NOW
    patience: float = 0.0
    asked: list[tuple[bool, bool]] = field(default_factory=list)

    async def another(self, ticket: Ticket, late: bool, again: bool) -> Ticket:
        self.asked.append((late, again))
        await asyncio.sleep(self.patience)
        if self.until == NEVER:
            raise NoToken("no token of q was left")
        return ticket._replace(until=self.until)

    def permit(self, until: float) -> Permit:
        return Permit(Ticket("q", 1, until, 0.05), cast(Tokens, self))


async def test_a_ticket_is_good_for_one_call_and_a_second_one_needs_its_own() -> None:
    exchange = Exchange()
    permit = exchange.permit(NOW)

    assert (await permit.ready(), exchange.asked) == (NOW, [])
    await permit.ready()
    assert exchange.asked == [(False, False)]


async def test_a_ticket_that_is_too_old_is_exchanged_and_one_that_was_again_is_reported() -> None:
    exchange = Exchange()
    permit = exchange.permit(NEVER)

    await permit.ready()
    assert exchange.asked == [(True, False)]
    permit.late()
    permit._ticket = permit._ticket._replace(until=NEVER)
    await permit.ready()
    assert exchange.asked == [(True, False), (True, True)]


@pytest.mark.parametrize(("again", "longer"), [(False, 1.0), (True, 2.0)])
async def test_what_was_too_late_goes_back_and_tokens_stay_out_longer_only_if_it_was_again(
    harness: SQLiteHarness, again: bool, longer: float
) -> None:
    book = Book()
    limits = RateLimits(Spied(harness.store, book), {"q": Policy(rate=Rate(1, per=3600.0))})
    await limits.take(["q"], 1)
    permit = limits.use("q")
    assert permit is not None
    late = permit._ticket._replace(until=NEVER)
    permit._ticket, permit._exchanged = late, again

    assert await permit.ready() > time.monotonic()

    assert [call.args for call in book.of("give_back")] == [("q", 1, late.stamp)]
    assert [call.args[3] for call in book.of("take")] == [3601.0, 3600.0 + longer]


async def test_without_a_token_soon_a_start_is_given_up(harness: SQLiteHarness) -> None:
    limits = RateLimits(harness.store, {"q": Policy(rate=Rate(1, per=3600.0))})
    permit = await limits.one("q")
    assert permit is not None
    await permit.ready()

    with pytest.raises(NoToken):
        await permit.ready()


@pytest.mark.parametrize("count", [1, 3])
async def test_jobs_for_which_there_is_no_token_are_given_back_unspent(
    harness: SQLiteHarness, count: int
) -> None:
    await enqueued(harness.store, count, payload={"payload": 1})
    contexts = tuple(Context(job) for job in await leased(harness.store, count))

    for context in contexts:
        context.permit = Exchange(until=NEVER).permit(NEVER)

    async def together(payload: list[Any]) -> list[Any]:
        return payload

    wakeup = asyncio.Event()
    runners = Runners(1, Isolation(harness.url, []), Dependencies({}), wakeup)
    limits, held = RateLimits(harness.store, {}), HeldLeases("w", Outbox(harness.store), wakeup)
    runtime = Runtime(runners, limits, held)
    handler = Handler(together, "task", batch=count)
    if count == 1:
        outcomes = [await perform(handler, contexts[0], Policy(), runtime)]
    else:
        outcomes = await perform_batch(handler, contexts, Policy(), runtime)

    await runners.close()
    assert [outcome.ending for outcome in outcomes] == [Ending.RELEASED] * count
    await harness.store.settle(outcomes)
    assert {(job.status, job.attempts) for job in await _all(harness)} == {(Status.PENDING, 0)}


async def test_a_thread_that_was_not_free_in_time_calls_with_another_ticket(harness: SQLiteHarness) -> None:
    free, exchange = threading.Event(), Exchange()
    context = await _leased(harness)
    context.permit = exchange.permit(time.monotonic() + 0.1)
    runners = Runners(1, Isolation(harness.url, []), Dependencies({}), asyncio.Event())
    runners._threads.submit(free.wait)
    running = asyncio.create_task(runners.run(Handler(_answer, "task"), {}, (context,)))
    await asyncio.sleep(0.2)  # by then its ticket is too old
    free.set()

    assert await running == "called"
    assert exchange.asked == [(True, False)]
    await runners.close()


async def test_the_wait_for_a_token_is_none_of_the_handlers_time(harness: SQLiteHarness) -> None:
    context = await _leased(harness, timeout=0.2)
    context.permit = permit = Exchange(patience=0.3).permit(NEVER)
    await permit.ready()
    assert permit.waited >= 0.3
    permit._waited = 60.0
    runners = Runners(1, Isolation(harness.url, []), Dependencies({}), asyncio.Event())

    assert await runners.run(Handler(_answer_slowly, "task"), {}, (context,)) == "called"
    await runners.close()


def _answer() -> str:
    return "called"


async def _answer_slowly() -> str:
    await asyncio.sleep(0.3)
    return "called"


async def _leased(harness: SQLiteHarness, **facts: Any) -> Context:
    await enqueued(harness.store, **facts)
    [job] = await leased(harness.store)
    return Context(job)


async def _all(harness: SQLiteHarness) -> list[Job]:
    return (await harness.store.find(Filter())).jobs


def tell_start(path: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{time.time()}\n")


def far_apart(path: Path) -> bool:
    """Whether two starts of one in 2 s kept them, save for the little by which a child may tell of the first late.

    If the token of the first had been spent on the start of its fork_server, the other one would have come at once.
    """
    one, two = map(float, path.read_text().split())
    return two - one >= 1.0


@pytest.fixture
def slow_fork_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose start takes long: so much longer than a child's that none of these can be taken for it."""
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(1.5)\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("slow_fork_server")
async def test_starts_of_isolated_jobs_keep_the_rate(app: Unstuck, tmp_path: Path) -> None:
    """An isolated job's token counts from the moment its handler starts, however long the fork server took to come up."""
    path = tmp_path / "starts"
    job = app.task(tell_start, isolate=True, rate=Rate(1, per=2.0))  # type: ignore[call-overload]
    await app.enqueue_many([job.call(str(path)) for _ in range(2)])
    await burst(app)
    assert far_apart(path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("slow_fork_server")
async def test_starts_of_jobs_that_crashed_before_keep_the_rate(
    app: Unstuck, harness: SQLiteHarness, tmp_path: Path
) -> None:
    """Nothing starts a fork server for a rate alone: the first job that needs it takes its token when it is up."""
    path = tmp_path / "starts"
    job = app.task(tell_start, max_crashes=5, rate=Rate(1, per=2.0))  # type: ignore[call-overload]
    await app.enqueue_many([job.call(str(path)) for _ in range(2)])
    assert len(await harness.store.lease({"default": Share(20.0, 2)}, 2, "dead worker")) == 2
    await Reaper(harness.store).recover(of="dead worker", cause="signal SIGKILL")
    await burst(app)
    assert far_apart(path)
