"""When a cron pattern comes next is found as cron-parser finds it, which BullMQ uses."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from support.node import Node

from unstuck.stores.redis.cron import next_slot

pytestmark = pytest.mark.timeout(400)  # the first may have to install its guests
PATTERNS = [
    "* * * * *", "*/5 * * * *", "0 0 * * *", "30 2 * * *", "30 1 * * *", "15,45 0-3 * * *", "0 3 * * 1-5", "0 3 * * MON-FRI",
    "0 0 1 * *", "0 0 L * *", "0 0 29 2 *", "0 9 13 * 5", "0 9 */2 * 1", "0 9 ? * 2", "0 9 1-7 * ?", "0 12 * * 5#3", "0 12 * * 5L",
    "0 12 * * 0", "0 12 * * 7", "0 12 * * */2", "0 22-23/1 * 1,6 *", "10/20 4 * * *", "*/10 * * * * *", "30 15 2 * * *",
    "0 */2 * * *", "5 4 * jan sun", "* *", "@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@weekdays", "@secondly",
]  # fmt: skip
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney", "America/Sao_Paulo"]
CHANGES = [
    "2026-03-08T06",
    "2026-03-29T00",
    "2026-04-04T15",
    "2026-10-03T15",
    "2026-10-24T23",
    "2026-11-01T04",
]


@pytest.mark.node("job schedulers")
def test_slots_are_those_of_nodes_parser_also_when_the_clocks_change() -> None:
    chance = random.Random(5)
    starts = [datetime.fromisoformat(f"{hour}:00:00+00:00") for hour in CHANGES]
    starts += [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=61 * n) for n in range(6)]
    asked = [
        (pattern, zone, int((start + timedelta(seconds=chance.random() * 4 * 3600)).timestamp() * 1000))
        for pattern in PATTERNS
        for zone in ZONES
        for start in starts
    ]
    theirs = [slot for n in range(0, len(asked), 500) for slot in Node()("slots", asked[n : n + 500])]
    ours = [next_slot(*one) for one in asked]
    wrong = [(one, a, b) for one, a, b in zip(asked, ours, theirs, strict=True) if a != b]
    assert wrong == [], f"{len(wrong)} of {len(asked)}"


@pytest.mark.parametrize(
    ("pattern", "zone", "what"),
    [("H * * * *", "UTC", "'H "), ("* * *", "Mars/Base", "Mars/Base"), ("61 * * * *", None, "'61 ")],
)
def test_what_cannot_be_read_is_named(pattern: str, zone: str | None, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        next_slot(pattern, zone, 0)
