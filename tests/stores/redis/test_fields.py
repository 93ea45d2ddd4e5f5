"""Fields of a job's data that its task does not take: ignored in what other producers enqueued, refused in what we did."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from support.bull import QUEUE, Bull, ours
from support.redis import Redis
from support.work import burst

from unstuck import Filter, Status, Unstuck
from unstuck.protocol.job import Job
from unstuck.testing import RedisHarness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests
DATA = {"to": "ann", "_meta": {"token": "secret"}, "v": 2}


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def greet(to: str) -> str:
    return f"sent to {to}"


async def greet_all(to: list[str]) -> list[str]:
    return [await greet(one) for one in to]


async def run(harness: RedisHarness, **options: Any) -> Job:
    async with Unstuck(harness.url) as app:
        if options.pop("batch", False):
            app.batch(5, name="send", queue=QUEUE, **options)(greet_all)
        else:
            app.task(name="send", queue=QUEUE, **options)(greet)
        await burst(app)
        [job] = (await harness.store.find(Filter(queue=QUEUE))).jobs
        return job


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.node("unknown fields")
@pytest.mark.parametrize(
    "options", [{}, {"batch": True}, {"isolate": True}], ids=["plain", "batch", "isolated"]
)
async def test_unknown_fields_of_a_job_of_nodes_are_ignored_with_one_warning(
    harness: RedisHarness, bull: Bull, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    [id_] = await bull.add(("send", DATA, {}))

    job = await run(harness, **options)

    assert (job.id, job.status, job.result) == (id_, Status.COMPLETED, "sent to ann")
    [told] = [line for line in warnings(caplog) if "_meta" in line]
    assert all(part in told for part in ("'send'", f"job {id_} ", "'_meta'", "'v'")), told
    assert "secret" not in caplog.text


@pytest.mark.node("unknown fields")
@pytest.mark.parametrize("isolate", [False, True])
async def test_a_strict_task_refuses_them(harness: RedisHarness, bull: Bull, isolate: bool) -> None:
    await bull.add(("send", DATA, {"attempts": 5}))

    job = await run(harness, strict=True, isolate=isolate)

    assert job.status is Status.FAILED
    assert job.error is not None
    assert (job.error.code, job.attempts) == ("invalid_payload", 1)
    assert "_meta" in job.error.message


async def test_a_field_that_is_missing_is_still_an_invalid_payload(harness: RedisHarness, bull: Bull) -> None:
    await bull.add(("send", {"too": "ann"}, {}))

    job = await run(harness)

    assert job.error is not None
    assert job.error.code == "invalid_payload"
    assert "missing required field `to`" in job.error.message


async def test_unknown_fields_of_a_job_of_ours_are_refused(harness: RedisHarness) -> None:
    await harness.store.enqueue([replace(ours("send"), payload=DATA)])

    job = await run(harness)

    assert job.error is not None
    assert job.error.code == "invalid_payload"
