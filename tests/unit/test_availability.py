"""What a reaper knows of when its store was up and reachable: only that time counts against a lease."""

import asyncio
import math
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from support.places import Both, Tables
from support.waiting import until_async

from unstuck import StoreUnavailable
from unstuck.protocol import availability
from unstuck.protocol.availability import Availability, Blind, Clock, Seen, joined, runs_out
from unstuck.protocol.leases import Reclaimed
from unstuck.protocol.store import Store
from unstuck.recovery import reaper
from unstuck.recovery.reaper import LOOK, SPARED, Reaper

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def reaper_of(place: Tables) -> Reaper:
    return Reaper(cast(Store, place))


async def blind_after(place: Tables, reaper: Reaper) -> Sequence[Blind]:
    await reaper.recover()
    blind: Sequence[Blind] = place.asked[-1].blind
    return blind


def pass_time(availability: Availability, seconds: float) -> None:
    """Let everything that it remembers have been so much longer ago."""
    if availability._recovered is not None:
        availability._recovered -= seconds
    if availability._looked:
        availability._looked = (availability._looked[0] - seconds, availability._looked[1] - seconds)
    availability._started -= seconds
    spans = [(since - seconds, until - seconds) for since, until in availability._blind]
    availability._blind.clear()
    availability._blind += spans


async def stand_still(reaper: Reaper) -> None:
    resting = asyncio.create_task(reaper._rest(0.01))
    await asyncio.sleep(0)
    time.sleep(availability.SLOW + 0.3)  # as a process that was stopped, maybe with a lock in hand
    await resting


async def test_time_in_which_the_reaper_itself_stood_still_does_not_count() -> None:
    place = Tables()
    reaper = reaper_of(place)
    await reaper.recover()
    await stand_still(reaper)

    spans = await blind_after(place, reaper)

    assert any(span.since - span.until > availability.SLOW for span in spans)
    await stand_still(reaper)
    assert reaper._availability._missed == [], "one that always stands still would recover nothing"


async def test_leases_that_a_standstill_spares_are_looked_for_more_often_for_a_minute() -> None:
    reaper = reaper_of(Both(Reclaimed([], 0, None), []))
    await reaper.recover()
    assert reaper._pause() == LOOK
    await stand_still(reaper)

    await reaper.recover()

    assert reaper._pause() == SPARED
    pass_time(reaper._availability, 61.0)
    await reaper.recover()
    assert reaper._pause() == LOOK


@pytest.mark.parametrize("opened", [True, False])
async def test_a_reaper_that_started_in_an_outage_counts_leases_from_the_first_answer(opened: bool) -> None:
    """It was not there when the outage began, so nothing before its end counts."""
    place = Tables()
    reaper = Reaper(cast(Store, place), store_was_away=not opened)
    if opened:
        place.away = True
        with pytest.raises(StoreUnavailable):
            await reaper.recover()
        place.away = False

    [span] = await blind_after(place, reaper)

    assert span.since > 1e8
    assert span.until < 20.0


async def test_time_in_which_nobody_answered_us_is_not_held_against_workers() -> None:
    place = Tables()
    reaper = reaper_of(place)
    assert await blind_after(place, reaper) == []
    pass_time(reaper._availability, 100.0)
    place.away = True
    with pytest.raises(StoreUnavailable):
        await reaper.recover()
    place.away = False

    [span] = await blind_after(place, reaper)
    assert span == pytest.approx((100.0, 0.0), abs=20.0)
    [again] = await blind_after(place, reaper)  # it is remembered, and does not grow
    assert again.since - again.until == pytest.approx(span.since - span.until)
    assert again.until > 0


@pytest.mark.parametrize("kind", [Tables, Both])
async def test_an_outage_is_noticed_whatever_was_asked_first(kind: type[Tables]) -> None:
    """The step before the recovery, which asks for the workers, may be the only one that fails."""
    place = Tables() if kind is Tables else Both(Reclaimed([], 0, None), [])
    reaper = reaper_of(place)
    await reaper.begin()
    pass_time(reaper._availability, 100.0)
    place.away = True
    await reaper.begin()
    place.away = False
    await reaper.begin()

    [span] = place.asked[-1].blind
    assert span == pytest.approx((100.0, 0.0), abs=20.0)


async def test_a_store_that_comes_and_goes_is_not_remembered_for_ever() -> None:
    place = Tables()
    reaper = reaper_of(place)
    for _ in range(100):
        place.away = True
        with pytest.raises(StoreUnavailable):
            await reaper.recover()
        place.away = False
        await reaper.recover()

    assert len(reaper._availability._blind) <= 64


async def test_a_wait_for_an_answer_is_blind_also_if_the_answer_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(availability, "SLOW", -1.0)  # any answer is a slow one
    watch = Availability()
    watch.recovered()
    watch.look(Clock(NOW))
    pass_time(watch, 50.0)  # the wait may have begun any time since
    with watch.asking():
        await asyncio.sleep(0)
    [span] = watch.look(Clock(NOW)).blind
    assert span == pytest.approx((50.0, 0.0), abs=20.0)


async def test_a_store_that_is_always_slow_is_not_blind_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nothing would be recovered for as long as it is slow."""
    monkeypatch.setattr(availability, "SLOW", -1.0)
    watch = Availability()
    watch.look(Clock(NOW))
    for slept in (1000.0, 2000.0, 3000.0):
        pass_time(watch, slept)
        with watch.asking():
            await asyncio.sleep(0)
        watch.recovered()
    spans = watch.look(Clock(NOW)).blind
    assert sum(span.since - span.until for span in spans) < 1000.0 + 500.0


@pytest.mark.parametrize(("jump", "spans"), [(-100.0, 0), (0.0, 0), (2.0, 0), (100.0, 1)])
async def test_a_clock_that_was_set_is_logged_and_what_it_skipped_not_held_against_workers(
    jump: float, spans: int, caplog: pytest.LogCaptureFixture
) -> None:
    place = Tables()
    reaper = reaper_of(place)
    await reaper.recover()
    pass_time(reaper._availability, 50.0)  # that was a while ago
    place.jump += jump
    blind = await blind_after(place, reaper)
    await reaper.recover()

    assert len(blind) == spans
    assert all(span == pytest.approx((100.0, 0.0), abs=20.0) for span in blind)
    told = {100.0: "went 1.*ahead: running leases", -100.0: "was put back by"}.get(jump)
    assert [bool(told and re.search(told, message)) for message in caplog.messages] == (
        [True] if told else []
    )


async def test_an_outage_before_the_clock_was_put_back_is_no_outage_of_the_time_that_comes_again() -> None:
    watch = Availability()
    watch.look(Clock(NOW))
    watch._blind.append((NOW.timestamp() - 5, NOW.timestamp()))
    assert watch.look(Clock(NOW - timedelta(hours=1))).blind == []
    assert watch._looked is not None
    watch._looked = (watch._looked[0] - 3600.0, watch._looked[1])  # an hour ago
    assert watch.look(Clock(NOW)).blind == []


@pytest.mark.parametrize(("uptime", "blind"), [(50.0, [Blind(1e9, 50.0)]), (math.inf, [])])
async def test_the_time_before_a_server_started_is_not_held_against_workers(
    uptime: float, blind: list[Blind]
) -> None:
    place = Tables()
    place.uptime = uptime

    for found, span in zip(await blind_after(place, reaper_of(place)), blind, strict=True):
        assert found == pytest.approx(tuple(span))


async def test_a_restart_grants_no_more_than_the_time_in_which_the_server_was_down() -> None:
    """Each one would grant every lease again, and a dead worker's jobs wait as often as somebody restarts."""
    watch = Availability()
    watch.look(Clock(NOW, 1000.0))
    pass_time(watch, 30.0)
    first = watch.look(Clock(NOW, 10.0))  # down for up to 20 s
    assert first.blind[1:] == [pytest.approx((30.0, 10.0), abs=20.0)]
    pass_time(watch, 40.0)
    second = watch.look(Clock(NOW, 35.0))
    before, *outages = second.blind
    assert before == pytest.approx((1e9, 1070.0), abs=20.0)
    assert [span.since - span.until for span in outages] == pytest.approx([20.0, 5.0], abs=20.0)
    assert sum(span.since - span.until for span in outages) < 40.0


async def test_an_outage_in_which_the_server_was_restarted_is_forgiven_once() -> None:
    place = Tables()
    place.uptime = 1000.0
    reaper = reaper_of(place)
    await reaper.recover()
    pass_time(reaper._availability, 100.0)
    place.away = True
    with pytest.raises(StoreUnavailable):
        await reaper.recover()
    place.away, place.uptime = False, 5.0

    _, span = await blind_after(place, reaper)
    assert span == pytest.approx((100.0, 0.0), abs=20.0)


async def test_between_two_recoveries_of_a_table_the_store_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables are scanned once a minute; an outage of half a minute must not be taken for silence."""
    monkeypatch.setattr(reaper, "LOOK", 0.01)
    place = Tables()
    one = reaper_of(place)
    going = asyncio.create_task(one.run())
    try:
        await until_async(lambda: len(place.asked) == 1, 10, "the first recovery")
        first = place.told
        await until_async(lambda: place.told > first, 10, "a look")
        place.away = True
        await until_async(lambda: one._availability.failing, 10, "the outage to be noticed")
        place.away = False
        await until_async(lambda: len(place.asked) == 2, 20, "a recovery soon after")
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    assert len(place.asked[-1].blind) == 1


def test_blind_spans_are_joined_where_they_overlap_or_touch() -> None:
    assert joined([(5, 9), (1, 2), (2, 3), (6, 7), (20, 21), (30, 30), (41, 40)]) == [
        (1, 3), (5, 9), (20, 21),
    ]  # fmt: skip
    assert joined([]) == []


def test_a_lease_runs_out_when_the_store_was_up_for_its_length() -> None:
    at = NOW.timestamp()
    seen = Seen(NOW, [Blind(1e9, 100.0), Blind(50.0, 40.0)])
    assert runs_out(at - 10, at - 30, seen) == at - 10  # the beat came after both
    assert runs_out(at - 10, at - 70, seen) == at
    assert runs_out(at - 86400, at - 86400 - 60, seen) == at - 100 + 60 + 10
