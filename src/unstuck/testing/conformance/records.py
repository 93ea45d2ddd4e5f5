"""keep, kept and forget: small facts that all clients share, changed by comparing versions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from unstuck.protocol.errors import ConfigError, PayloadError
from unstuck.protocol.operators import Filter
from unstuck.protocol.records import LARGEST, LONGEST_NAME, PAGE, Record
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import enqueued
from unstuck.testing.harnesses.harness import Harness

CLIENTS = 4
# In the order of their code points; as UTF-16 the last two would change places.
NAMES = ["A", "Zürich", "a", "a\nb:c/%", "a b", "a'; DROP", "{a}", "é", "日本", "ｱ", "😀"]


async def read(store: Store, name: str, kind: str = "k") -> Record | None:
    """One record, by the call that changes nothing."""
    return (await store.keep(kind, name, None)).record


async def made(store: Store, name: str, value: Any = 1, kind: str = "k") -> Record:
    kept = await store.keep(kind, name, value)
    assert kept.applied
    assert kept.record is not None
    return kept.record


async def names(store: Store, kind: str = "k") -> list[str]:
    return [record.name for record in await store.kept(kind)]


async def test_a_record_that_was_kept_is_seen_by_all(harness: Harness) -> None:
    before = (await harness.store.clock()).now
    record = await made(harness.store, "n", {"url": "https://example.org", "on": ["job.failed"]})

    other = await harness.another()
    assert (record.kind, record.name) == ("k", "n")
    assert record.value == {"url": "https://example.org", "on": ["job.failed"]}
    assert record.version > 0
    after = (await other.clock()).now
    assert before - timedelta(milliseconds=1) <= record.updated_at <= after + timedelta(milliseconds=1)
    assert await other.kept("k") == [record]
    assert await read(other, "n") == record


async def test_a_value_comes_out_as_it_went_in(harness: Harness) -> None:
    for number, value in enumerate(
        [0, False, "", [], {}, "é 日本 😀 \\ \" ' \n", 10**30, 0.1, {"a": [None, {"b": 1}]}]
    ):
        record = await made(harness.store, str(number), value)
        assert record == await read(harness.store, str(number))
        assert json.dumps(record.value) == json.dumps(value)


async def test_only_who_shows_the_present_version_changes_a_record(harness: Harness) -> None:
    first = await made(harness.store, "n", "a")

    second = await harness.store.keep("k", "n", "b", first.version)
    assert second.applied
    assert second.record is not None
    assert (second.record.value, second.record.version) == ("b", first.version + 1)
    for version in (0, first.version, second.record.version + 1):
        assert await harness.store.keep("k", "n", "c", version) == (False, second.record)
    assert await harness.store.kept("k") == [second.record]


async def test_a_record_that_is_not_there_is_not_changed(harness: Harness) -> None:
    record = await made(harness.store, "n")

    assert await harness.store.keep("k", "other", 1, record.version) == (False, None)
    assert await harness.store.kept("k") == [record]


async def test_only_who_shows_the_present_version_deletes_a_record(harness: Harness) -> None:
    record = await made(harness.store, "n")

    for version in (0, record.version + 1, record.version - 1):
        assert await harness.store.keep("k", "n", None, version) == (False, record)
    assert await harness.store.keep("k", "n", None, record.version) == (True, None)
    assert await harness.store.kept("k") == []
    assert await read(harness.store, "n") is None


async def test_a_call_whose_answer_was_lost_may_be_repeated(harness: Harness) -> None:
    first = await harness.store.keep("k", "n", "a")
    assert await harness.store.keep("k", "n", "a") == first
    assert first.record is not None
    version = first.record.version

    second = await harness.store.keep("k", "n", "b", version)
    assert await harness.store.keep("k", "n", "b", version) == second

    await harness.store.keep("k", "n", None, version + 1)
    assert await harness.store.keep("k", "n", None, version + 1) == (True, None)


async def test_a_late_call_about_a_record_that_was_deleted_leaves_its_successor_alone(
    harness: Harness,
) -> None:
    seen = set()
    for _ in range(20):
        old = await made(harness.store, "n", "a")
        await harness.store.keep("k", "n", None, old.version)
        seen.add(old.version)
    record = await made(harness.store, "n", "b")

    for version in seen:
        assert await harness.store.keep("k", "n", "late", version) == (False, record)
        assert await harness.store.keep("k", "n", None, version) == (False, record)


async def test_of_many_that_make_a_record_at_once_one_wins(harness: Harness) -> None:
    stores = [await harness.another() for _ in range(CLIENTS)]

    for name in ("a", "b", "c"):
        answers = await asyncio.gather(*(stores[n % CLIENTS].keep("k", name, n) for n in range(20)))
        assert sum(answer.applied for answer in answers) == 1
        present = await read(harness.store, name)
        assert present is not None
        assert {answer.record for answer in answers} == {present}
        assert answers[present.value].applied


async def test_no_change_of_many_at_once_is_lost(harness: Harness) -> None:
    stores = [await harness.another() for _ in range(CLIENTS)]

    await asyncio.gather(*(_append(store, f"w{n}", 5) for n, store in enumerate(stores * 2)))

    record = await read(harness.store, "n")
    assert record is not None
    assert isinstance(record.value, list)
    assert Counter(record.value) == {f"w{n}": 5 for n in range(2 * CLIENTS)}


async def test_a_record_is_made_and_deleted_by_many_at_once(harness: Harness) -> None:
    """Each that made it deletes it, so that it is made and deleted equally often."""
    stores = [await harness.another() for _ in range(CLIENTS)]

    async def work(number: int) -> int:
        mine = 0
        for turn in range(10):
            kept = await stores[number].keep("k", "n", [number, turn])
            assert kept.record is not None, "who is refused is shown what is there"
            if kept.applied:
                assert kept.record.value == [number, turn]
                assert await stores[number].keep("k", "n", None, kept.record.version) == (True, None)
                mine += 1
        return mine

    assert sum(await asyncio.gather(*map(work, range(CLIENTS)))) > 0
    assert await harness.store.kept("k") == []


async def test_a_reader_sees_each_version_with_its_own_value(harness: Harness) -> None:
    first = await made(harness.store, "n", 0)
    other, done = await harness.another(), asyncio.Event()

    async def watch() -> int:
        looks = 0
        while not done.is_set():
            [record] = await other.kept("k")
            assert record.value == record.version - first.version
            looks += 1
        return looks

    watching = asyncio.create_task(watch())
    for number in range(100):
        kept = await harness.store.keep("k", "n", number + 1, first.version + number)
        assert kept.applied
    done.set()
    assert await watching > 0


async def _append(store: Store, word: str, times: int) -> None:
    record = await read(store, "n")
    for turn in range(times):
        applied = False
        while not applied:
            old: Any = record.value if record else []
            applied, record = await store.keep("k", "n", [*old, word], record.version if record else 0)
        assert record is not None
        assert list(record.value).count(word) == turn + 1


_APPENDER = """
import asyncio, sys
from unstuck import open_store

async def main(url, word):
    async with open_store(url) as store:
        for _ in range(20):
            kept = await store.keep("k", "n", None)
            while True:
                record = kept.record
                words = [*record.value, word] if record else [word]
                kept = await store.keep("k", "n", words, record.version if record else 0)
                if kept.applied:
                    break

asyncio.run(main(*sys.argv[1:]))
"""


async def test_no_change_of_many_processes_is_lost(harness: Harness) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", _APPENDER, harness.url, f"p{number}"])  # noqa: ASYNC220 - started together
        for number in range(3)
    ]
    codes = [await asyncio.to_thread(process.wait) for process in processes]

    assert codes == [0] * 3
    record = await read(harness.store, "n")
    assert record is not None
    assert Counter(record.value) == {f"p{number}": 20 for number in range(3)}


async def test_kinds_do_not_mix(harness: Harness) -> None:
    a, b = await made(harness.store, "n", "a", "a"), await made(harness.store, "n", "b", "a-b_2")

    assert (await harness.store.kept("a"), await harness.store.kept("a-b_2")) == ([a], [b])
    assert await harness.store.kept("b") == []
    await harness.age(10)
    assert await harness.store.forget("a", 1) == 1
    [left] = await harness.store.kept("a-b_2")
    await made(harness.store, "n", "a", "a")
    assert (await harness.store.keep("a-b_2", "n", None, b.version)).applied
    assert (left.value, await names(harness.store, "a")) == ("b", ["n"])


async def test_a_record_is_no_job(harness: Harness) -> None:
    [ref] = await enqueued(harness.store)
    await made(harness.store, "n", 1, "jobs")

    assert [job.ref for job in (await harness.store.find(Filter())).jobs] == [ref]
    assert [of.queue for of in await harness.store.count()] == [ref.queue]
    assert "failure" not in {finding.level for finding in await harness.store.checkup(deep=True)}


async def test_records_are_listed_by_name_page_by_page(harness: Harness) -> None:
    for name in (*NAMES[::-2], *NAMES[-2::-2]):
        await made(harness.store, name, name)

    assert await names(harness.store) == NAMES
    assert [record.name for record in await harness.store.kept("k", limit=3)] == NAMES[:3]
    for at, name in enumerate(NAMES):
        assert [record.name for record in await harness.store.kept("k", name, 2)] == NAMES[at + 1 : at + 3]
    assert [record.name for record in await harness.store.kept("k", "a a", 1)] == ["a b"], (
        "no record has the first name"
    )
    assert await harness.store.kept("k", "\U0010ffff") == []
    assert await harness.store.kept("k", limit=0) == []


async def test_one_answer_is_bounded_whatever_limit_is_asked_for(harness: Harness) -> None:
    wanted = [f"{number:04}" for number in range(PAGE + 20)]
    for first in range(0, len(wanted), 20):
        await asyncio.gather(*(harness.store.keep("k", name, 1) for name in wanted[first : first + 20]))

    page = [record.name for record in await harness.store.kept("k", limit=10**6)]
    rest = [record.name for record in await harness.store.kept("k", page[-1], 10**6)]
    assert (len(page), page + rest) == (PAGE, wanted)


async def test_the_largest_records_fill_a_page(harness: Harness) -> None:
    text = "x" * (LARGEST - 2)
    for number in range(5):
        await made(harness.store, str(number), text)

    assert [record.value for record in await harness.store.kept("k")] == [text] * 5


async def test_old_records_are_forgotten_the_oldest_first(harness: Harness) -> None:
    for name in ("b", "a", "c"):
        await made(harness.store, name)
        await harness.age(10)
    await made(harness.store, "new")

    assert await harness.store.forget("k", 3600) == 0
    assert await harness.store.forget("k", 5, limit=0) == 0
    assert await harness.store.forget("k", 5, limit=2) == 2
    assert await names(harness.store) == ["c", "new"]
    assert await harness.store.forget("k", 5) == 1
    assert await harness.store.forget("k", 5) == 0
    assert await names(harness.store) == ["new"]


async def test_a_record_that_was_forgotten_is_gone_for_every_call(harness: Harness) -> None:
    old = await made(harness.store, "n", "a")
    await harness.age(10)
    assert await harness.store.forget("k", 5) == 1

    assert await harness.store.keep("k", "n", "b", old.version) == (False, None)
    assert (await made(harness.store, "n", "b")).version != old.version


async def test_a_record_that_is_kept_again_is_young_again(harness: Harness) -> None:
    record = await made(harness.store, "n", "same")
    await harness.age(100)
    assert (await harness.store.keep("k", "n", "same", record.version)).applied
    await harness.age(10)

    assert await harness.store.forget("k", 50) == 0
    assert await harness.store.forget("k", 5) == 1


async def test_a_repeated_call_does_not_make_a_record_young(harness: Harness) -> None:
    record = await made(harness.store, "n", "same")
    await harness.age(100)

    assert (await harness.store.keep("k", "n", "same")).applied
    present = await read(harness.store, "n")
    assert present is not None
    assert present.updated_at < record.updated_at
    assert await harness.store.forget("k", 50) == 1


async def test_a_value_may_have_64_kib_and_no_more(harness: Harness) -> None:
    record = await made(harness.store, "n", "x" * (LARGEST - 2))
    assert await read(harness.store, "n") == record

    with pytest.raises(PayloadError, match=r"record 'n': 65,537 bytes as JSON, at most 65,536 are allowed"):
        await harness.store.keep("k", "n", "x" * (LARGEST - 1), record.version)
    assert await harness.store.kept("k") == [record]


@pytest.mark.parametrize("value", [float("nan"), "a\0b", "\ud800", object(), {1, object()}])
async def test_what_is_not_json_is_refused(harness: Harness, value: Any) -> None:
    with pytest.raises(PayloadError, match="record 'n'"):
        await harness.store.keep("k", "n", value)
    assert await harness.store.kept("k") == []


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * (LONGEST_NAME + 1)])
async def test_a_name_that_cannot_be_kept_is_refused(harness: Harness, name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"name .* of a record of kind k is not allowed: it has 1 to 200 char"
    ):
        await harness.store.keep("k", name, 1)
    if name:
        with pytest.raises(ConfigError, match=r"of a record of kind k is not allowed"):
            await harness.store.kept("k", name)


async def test_a_name_may_be_long(harness: Harness) -> None:
    name = "😀" * LONGEST_NAME
    record = await made(harness.store, name)

    assert await harness.store.kept("k") == [record]
    assert await harness.store.keep("k", name, None, record.version) == (True, None)


@pytest.mark.parametrize("kind", ["", "Kind", "a.b", "a:b", "a b", "2a", "{a}", "é", "k" * 41, "k\n"])
async def test_a_kind_that_is_not_a_word_is_refused(harness: Harness, kind: str) -> None:
    for call in (
        harness.store.keep(kind, "n", 1),
        harness.store.kept(kind),
        harness.store.forget(kind, 1.0),
    ):
        with pytest.raises(
            ConfigError, match=r"kind of record .* is not allowed: it has up to 40 lower-case letters"
        ):
            await call


@pytest.mark.parametrize("version", [-1, 2**53, 10**30])
async def test_a_version_that_no_record_can_have_is_refused(harness: Harness, version: int) -> None:
    with pytest.raises(ConfigError, match=f"version of record 'n' is {version}: it must be the version that"):
        await harness.store.keep("k", "n", 1, version)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 367 * 86400])
async def test_an_age_that_cannot_be_is_refused(harness: Harness, seconds: float) -> None:
    with pytest.raises(
        ConfigError, match=r"age of records of kind k is .*: it must be 0 to 31622400 seconds"
    ):
        await harness.store.forget("k", seconds)


async def test_records_outlast_the_process_that_kept_them(harness: Harness) -> None:
    async with harness.store.twin() as twin:
        record = await made(twin, "n", {"a": [1, 2.5, "é"]})

    async with harness.store.twin() as later:
        await later.migrate()
        assert await later.kept("k") == [record]
        assert (await later.keep("k", "n", "b", record.version)).applied
