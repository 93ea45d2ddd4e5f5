"""Every bound of policies, names, options and addresses, and what is said about a value beyond it."""

import contextlib
import math
import re
import string
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusal import refusal

from unstuck.app.app import Unstuck
from unstuck.config.checks import (
    LONGEST_LEASE,
    YEAR,
    job_key,
    lane_name,
    number,
    queue_name,
    shown,
    task_name,
    whole,
)
from unstuck.config.job_options import Options
from unstuck.config.policy import Policy, Rate
from unstuck.config.retry import Retry
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Status
from unstuck.protocol.operators import Filter
from unstuck.testing import inline

WORD = frozenset(string.ascii_letters + string.digits + "_.-")
HUGE = 10**5000  # more digits than Python is willing to print

NO_NAMES = [
    "", " ", "a b", " a", "a ", "a:b", "{a}", "a*", "a\n", "\n", "a\0", "🙂", "../x", "'; DROP TABLE job; --",
    "a`b", "a/b", "-a", ".a", "a\u202eb", "\ud800", None, 5, b"q", ["q"], True,
]  # fmt: skip


@pytest.mark.parametrize("name", [*NO_NAMES, "_a", "q" * 101])
def test_a_bad_queue_name_is_refused_with_the_rule(name: Any) -> None:
    told = refusal(lambda: queue_name(name))

    assert told == (
        f"queue name {shown(name)} is not allowed: "
        "1 to 100 letters, digits, '_', '.' or '-', beginning with a letter or digit"
    )


@pytest.mark.parametrize(
    "name",
    ["", " ", " a", "a ", "a\n", "\n", "a\0", "a\u202eb", "\ud800", None, 5, b"q", ["q"], True, "t" * 129],
)
def test_a_bad_task_name_is_refused_with_the_rule(name: Any) -> None:
    told = refusal(lambda: task_name(name))

    assert told == (
        f"task name {shown(name)} is not allowed: "
        "a text of 1 to 128 printable characters, without a space at its beginning or end"
    )


@pytest.mark.parametrize("name", ["q", "Q9", "0", "a.b-c_d", "é", "e\u0301", "ｑ", "٣", "почта", "q" * 100])
def test_a_good_queue_name_is_returned_as_it_is(name: str) -> None:
    assert queue_name(name) == name


@pytest.mark.parametrize(
    "name", ["t", "_t", "os.system", "shop:send-mail", "Send Email", "user/created", "9a", "é", "t" * 128]
)
def test_a_good_task_name_is_returned_as_it_is(name: str) -> None:
    assert task_name(name) == name


@given(st.text(st.sampled_from([*sorted(WORD), ":", " ", "é", "\n"]), max_size=130) | st.text())
def test_names_are_allowed_by_their_letters_alone(text: str) -> None:
    kinds = [letter if letter in "_.-" else category(letter)[0] for letter in text]
    queue = 1 <= len(text) <= 100 and kinds[0] in {"L", "N"} and set(kinds) <= {*"LNM_.-"}
    task = 1 <= len(text) <= 128 and text.isprintable() and text == text.strip()

    for check, allowed in ((queue_name, queue), (task_name, task)):
        if allowed:
            assert check(text) == text
        else:
            told = refusal(partial(check, text))
            assert (len(told) < 300, told.isprintable()) == (True, True)


@pytest.mark.parametrize(
    "key", ["", "k" * 256, "k" * 300, "a\nb", "a\0b", "\x1b[2J", "a\u202eb", "\ud800", 5, b"k"]
)
def test_a_bad_key_is_refused_with_the_rule(key: Any) -> None:
    told = refusal(lambda: Options(key=key))

    assert told == f"key {shown(key)} is not allowed: a text of 1 to 255 printable characters"


@pytest.mark.parametrize("key", ["k", "k" * 255, "invoice 17/2027", "Müller", "🙂"])
def test_a_printable_key_or_lane_is_accepted(key: str) -> None:
    assert Options(key=key).key == key == job_key(key)
    assert Options(lane=key[:100]).lane == key[:100] == lane_name(key[:100])


@pytest.mark.parametrize("lane", ["", "l" * 101, "a\nb", 5, None])
def test_a_bad_lane_is_refused_with_the_rule(lane: Any) -> None:
    told = refusal(lambda: lane_name(lane))

    assert told == f"lane {shown(lane)} is not allowed: a text of 1 to 100 printable characters"


@pytest.mark.parametrize("priority", [-1, 10, 2**21, "high", "5", 1.5, 5.0, True, None, math.nan])
def test_a_priority_is_a_whole_number_from_0_to_9(priority: Any) -> None:
    told = refusal(lambda: Options(priority=priority))

    assert told == f"priority is {priority!r}: it must be a whole number from 0 to 9"


@pytest.mark.parametrize("attempts", [0, -1, 1001, 10**9, "3", 2.5, True, None])
def test_attempts_are_a_whole_number_from_1_to_1000(attempts: Any) -> None:
    told = refusal(lambda: Retry(attempts=attempts))

    assert told == f"attempts is {attempts!r}: it must be a whole number from 1 to 1000"


@pytest.mark.parametrize("crashes", [0, -1, 1001, "3", 2.5, True])
def test_a_crash_budget_is_a_whole_number_from_1_to_1000(crashes: Any) -> None:
    told = refusal(lambda: Policy(max_crashes=crashes))

    assert told == f"max_crashes is {crashes!r}: it must be a whole number from 1 to 1000"


@pytest.mark.parametrize(
    "delay", [-1, -0.001, 10 * YEAR + 1, 1e15, "5m", "5", None, True, math.nan, math.inf]
)
def test_a_delay_is_a_number_of_seconds_up_to_ten_years(delay: Any) -> None:
    told = refusal(lambda: Options(delay=delay))

    assert told.startswith(f"delay is {delay!r}: it must be a number from 0 to ")
    assert told.endswith("(seconds: ten years)")


@pytest.mark.parametrize(
    "lease", [0, 0.001, 0.49, -20, LONGEST_LEASE + 1, 10 * YEAR, "20", True, math.nan, math.inf]
)
def test_a_lease_lasts_from_half_a_second_to_a_week(lease: Any) -> None:
    told = refusal(lambda: Policy(lease=lease))

    assert told == f"lease is {lease!r}: it must be a number from 0.5 to 604800 (seconds)"


@pytest.mark.parametrize("heartbeat", [0, 0.01, -5, LONGEST_LEASE + 1, "5", True, math.nan, math.inf])
def test_a_heartbeat_comes_within_its_bounds(heartbeat: Any) -> None:
    told = refusal(lambda: Policy(heartbeat=heartbeat))

    assert told == f"heartbeat is {heartbeat!r}: it must be a number from 0.05 to 604800 (seconds)"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"limit": 0}, "limit is 0: it must be a whole number from 1 to 1000000"),
        ({"lane_limit": 1_000_001}, "lane_limit is 1000001: it must be a whole number from 1 to 1000000"),
        ({"rate": 20}, "rate is 20: it must be a Rate, for example Rate(20, per=60)"),
        ({"stages": ["asr"]}, "stages is ['asr']: it must give a lease for each stage, in seconds"),
        ({"stages": {"asr": 0.4}}, "lease of stage 'asr' is 0.4: it must be a number from 0.5 to 604800 (seconds)"),
        ({"factors": 2}, "factors is 2: it must give a number for each stage"),
        ({"factors": {"asr": 0.9}}, "factor of stage 'asr' is 0.9: it must be a number from 1 to 1000 (times the expected duration)"),
        ({"factors": {"asr": 1001}}, "factor of stage 'asr' is 1001: it must be a number from 1 to 1000 (times the expected duration)"),
        ({"retention": 0.009}, "retention is 0.009: it must be a number from 0.01 to 3660 (days)"),
        ({"retention": 3661}, "retention is 3661: it must be a number from 0.01 to 3660 (days)"),
        ({"retention_from": "days"}, "retention_from is 'days': it must name an environment variable"),
        ({"retention_from": 5}, "retention_from is 5: it must name an environment variable"),
        ({"rate": (0,)}, "rate count is 0: it must be a whole number from 1 to 1000000"),
        ({"rate": (1_000_001,)}, "rate count is 1000001: it must be a whole number from 1 to 1000000"),
        ({"rate": (1, 0.09)}, "rate per is 0.09: it must be a number from 0.1 to 86400 (seconds)"),
        ({"rate": (1, 86401)}, "rate per is 86401: it must be a number from 0.1 to 86400 (seconds)"),
        ({"rate": (1, 60, "a b")}, "queue name 'a b' is not allowed: 1 to 100 letters, digits, '_', '.' or '-', beginning with a letter or digit"),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_policy_cannot_have_is_refused_with_its_bounds(facts: dict[str, Any], told: str) -> None:
    rate = facts.get("rate")

    assert refusal(lambda: Rate(*rate) if isinstance(rate, tuple) else Policy(**facts)) == told


@pytest.mark.parametrize("name", ["backoff", "lapse_backoff"])
@pytest.mark.parametrize("steps", [[1.0, 2.0], 5.0, "12", None, (1.0,) * 101])
def test_backoff_steps_are_a_tuple_of_at_most_100(name: str, steps: Any) -> None:
    told = refusal(lambda: make_with_steps(name, steps))

    also = ", or an Exponential(…)" if name == "backoff" else ""
    assert told == f"{name} is {shown(steps)}: it must be a tuple of at most 100 numbers (seconds){also}"


@pytest.mark.parametrize("name", ["backoff", "lapse_backoff"])
@pytest.mark.parametrize("step", [-1.0, YEAR + 1, math.nan, math.inf, "1", None, True])
def test_each_backoff_step_is_a_number_of_seconds_up_to_a_year(name: str, step: Any) -> None:
    told = refusal(lambda: make_with_steps(name, (1.0, step)))

    assert told.startswith(f"{name} is {step!r}: it must be a number from 0 to ")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Options(priority=HUGE),
        lambda: Options(delay=HUGE),
        lambda: Options(delay=10**400),
        lambda: Retry(attempts=HUGE),
        lambda: Policy(lease=-HUGE),
    ],
    ids=["priority", "delay", "delay beyond floats", "attempts", "lease"],
)
def test_a_number_too_long_to_print_is_refused_like_any_other(make: Callable[[], object]) -> None:
    assert re.search(r" is (a number of thousands of digits|10+ …): it must be a", refusal(make))


def test_a_long_value_is_not_repeated_in_full() -> None:
    assert shown("x" * 100) == "'" + "x" * 57 + " …"
    assert len(refusal(lambda: queue_name("x " * 10_000))) < 200
    assert len(refusal(lambda: Retry(backoff=tuple(range(10_000))))) < 200


@pytest.mark.parametrize(
    "make",
    [
        lambda: Policy(lease=0.5 + 1e-9, heartbeat=0.05),
        lambda: Policy(lease=20.0, heartbeat=20.0),
        lambda: Policy(lease=20.0, heartbeat=21.0),
        lambda: Policy(lease=10.9, heartbeat=5.0),
        lambda: Policy(lease=100.0, heartbeat=50.0),
    ],
)
def test_a_lease_too_short_for_its_heartbeat_is_refused_with_both_ways_out(
    make: Callable[[], object],
) -> None:
    told = refusal(make)

    assert re.match(r"lease is [\d.]+ s, but with a heartbeat of [\d.]+ s it must be at least [\d.]+ s", told)
    assert "2 × heartbeat + max(1 s, lease/10)" in told
    assert told.endswith("lengthen the lease or beat more often")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"lease": 10.9}, "lease is 10.9 s, but with a heartbeat of 5 s it must be at least 11.13 s"),
        ({"lease": 0.6, "heartbeat": 0.05}, "lease is 0.6 s, but with a heartbeat of 0.05 s it must be at least 1.12 s"),
        ({"stages": {"asr": 9}}, "lease of stage 'asr' is 9 s, but with a heartbeat of 5 s it must be at least 11.13 s"),
        ({"lease": 20.0, "heartbeat": 9.01}, "lease is 20 s, but with a heartbeat of 9.01 s it must be at least 20.04 s"),
    ],
    ids=str,
)  # fmt: skip
def test_the_shortest_lease_for_a_heartbeat_is_reported(facts: dict[str, Any], told: str) -> None:
    assert refusal(lambda: Policy(**facts)).startswith(f"{told} (2 × heartbeat + ")


@given(heartbeat=st.floats(0.05, 100_000), share=st.floats(0.1, 1.0))
def test_the_lease_that_the_message_asks_for_is_long_enough(heartbeat: float, share: float) -> None:
    told = refusal(lambda: Policy(lease=max(0.5, 2 * heartbeat * share), heartbeat=heartbeat))
    wanted = re.search(r"at least ([\d.e+]+) s", told)

    assert wanted
    assert Policy(lease=float(wanted[1]), heartbeat=heartbeat)


@pytest.mark.parametrize(
    ("lease", "heartbeat"),
    [(20.0, 5.0), (300.0, 120.0), (11.2, 5.0), (1.1, 0.05), (LONGEST_LEASE, 1), (5, 2), (20, 9)],
)
def test_a_lease_that_outlasts_two_missed_beats_is_accepted(lease: float, heartbeat: float) -> None:
    policy = Policy(lease=lease, heartbeat=heartbeat)

    assert (policy.lease, policy.heartbeat) == (lease, heartbeat)


def test_the_bounds_themselves_are_allowed() -> None:
    assert [whole("n", n, 1, 1000) for n in (1, 1000)] == [1, 1000]
    assert [number("n", n, 0.0, 2.0) for n in (0, 2, 2.0)] == [0.0, 2.0, 2.0]
    assert [Options(priority=n).priority for n in (0, 9)] == [0, 9]
    assert [Retry(attempts=n).attempts for n in (1, 1000)] == [1, 1000]
    assert Retry(backoff=(0.0,) * 99 + (YEAR,)).backoff[-1] == YEAR
    assert Options(delay=10 * YEAR).delay == 10 * YEAR
    assert [Rate(1, 0.1, "b").per, Rate(1_000_000, 86400).per] == [0.1, 86400]
    assert Policy(lease=1.1, heartbeat=0.05, max_crashes=1, limit=1, lane_limit=1, retention=0.01)
    assert Policy(max_crashes=1000, limit=1_000_000, lane_limit=1_000_000, retention=3660)
    assert Policy(heartbeat=0.05, stages={"a": 1.1}, factors={"a": 1, "b": 1000}, retention_from="_D9").stages
    assert Policy(retention=None, retention_from="").retention is None


def test_only_limits_that_are_set_are_shown() -> None:
    assert Policy().limits == {}
    assert Policy(limit=2, lane_limit=1, rate=Rate(3, per=5.0)).limits == {
        "limit": 2,
        "lane_limit": 1,
        "rate": {"count": 3, "per": 5.0, "bucket": ""},
    }


def test_two_policies_name_what_they_disagree_in() -> None:
    mine = Policy(lease=60.0, max_crashes=10)
    theirs = Policy(lease=30.0, lapse_backoff=(30.0,))

    assert mine.differences(theirs) == [
        "lease 60.0 and 30.0",
        "max_crashes 10 and None",
        "lapse_backoff () and (30.0,)",
    ]
    assert mine.differences(Policy(lease=60, max_crashes=10)) == []


def test_again_without_a_key_is_refused_with_the_reason() -> None:
    assert refusal(lambda: Options(again=True)) == (
        "again=True needs a key: it starts the finished job with that key over"
    )


def test_a_time_without_a_zone_is_refused_with_a_way_out() -> None:
    told = refusal(lambda: Options(run_at=datetime(2027, 1, 1)))  # noqa: DTZ001 - that is the point

    assert told.endswith("has no time zone: add one, for example tzinfo=UTC, or +00:00 in a text")


@pytest.mark.parametrize("run_at", ["2027-01-01T00:00:00Z", "5m", 1.8e9, date(2027, 1, 1), True])
def test_a_run_at_that_is_no_time_is_refused(run_at: Any) -> None:
    assert refusal(lambda: Options(run_at=run_at)).startswith("run_at ")


@pytest.mark.parametrize(
    "run_at",
    [
        datetime(1999, 12, 31, tzinfo=UTC),
        datetime(2999, 1, 1, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_a_time_in_the_past_or_far_away_is_accepted(run_at: datetime) -> None:
    assert Options(run_at=run_at).run_at == run_at


@pytest.mark.parametrize(
    "when", ["0001-01-01T00:00+14:00", "0001-01-01T00:00+00:00", "9999-12-31T23:59-14:00"]
)
@pytest.mark.anyio
async def test_a_job_for_the_end_of_time_is_refused_or_does_no_harm(when: str) -> None:
    app = Unstuck("sqlite:///:memory:")
    task = app.task(name="t")(lambda: None)

    async with inline(app) as jobs:
        usual = await task.enqueue()
        with contextlib.suppress(ConfigError):
            await task.options(run_at=datetime.fromisoformat(when)).enqueue()
        await jobs.run()

        assert await usual.status() is Status.COMPLETED
        assert usual.ref in [job.ref for job in (await jobs.jobs.find(Filter())).jobs]


@pytest.mark.parametrize(
    ("options", "thing"),
    [
        ({"name": "a "}, "task name 'a '"), ({"queue": "a:b"}, "queue name 'a:b'"), ({"retry": 0}, "attempts is 0"),
        ({"retry": True}, "attempts is True"), ({"retry": "3"}, "retry"), ({"retry": 2.5}, "retry"),
        ({"lease": 0}, "lease is 0"), ({"heartbeat": 20.0}, "lease is 20 s"), ({"max_crashes": 0}, "max_crashes is 0"),
        ({"lapse_backoff": (-1,)}, "lapse_backoff is -1"), ({"lapse_backoff": 5}, "lapse_backoff"),
    ],
)  # fmt: skip
def test_what_a_task_cannot_have_is_refused_at_registration(options: dict[str, Any], thing: str) -> None:
    app = Unstuck("sqlite:///:memory:")

    assert refusal(lambda: app.task(**{"name": "t"} | options)(lambda: None)).startswith(thing)
    assert app.tasks == {}


@pytest.mark.parametrize(
    "url",
    [
        "", "jobs.db", "sqlite:", "sqlite:///", "sqlite://host/jobs.db", "mysql://host/db", "sqlite:///jobs.db?event=all",
        "sqlite:///jobs.db?events=some", None, 5, b"sqlite:///jobs.db", "http://[", "sqlite://[::1/jobs.db",
    ],
)  # fmt: skip
def test_a_store_that_cannot_be_is_refused_at_once(url: Any) -> None:
    assert refusal(lambda: Unstuck(url)).startswith("store ")


@pytest.mark.parametrize("url", ["mysql://ann:{}@host/db", "sqlite://ann:{}@host/jobs.db", "password={}"])
def test_the_address_of_a_refused_store_is_reported_without_its_password(url: str) -> None:
    assert "cAnArY" not in refusal(lambda: Unstuck(url.format("cAnArY")))


def make_with_steps(name: str, steps: Any) -> object:
    return Retry(backoff=steps) if name == "backoff" else Policy(lapse_backoff=steps)
