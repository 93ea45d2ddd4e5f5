"""What comes back of a job: as its handler's annotation says, for whoever has its handle; or its record, by its id."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel
from support.work import burst

from unstuck import JobFailed, Permanent, Status, UnknownJob, Unstuck
from unstuck.protocol.errors import PayloadError

pytestmark = pytest.mark.anyio


@dataclass
class Order:
    number: int
    when: datetime


class Model(BaseModel):
    price: Decimal


ORDER = Order(7, datetime(2027, 1, 31, tzinfo=UTC))


def one() -> Order:
    return ORDER


async def several() -> list[tuple[str, Order]]:
    return [("first", ORDER)]


def model() -> Model | None:
    return Model(price=Decimal("1.10"))


def numbered() -> dict[int, set[str]]:
    return {1: {"a"}}


def indistinct() -> dict[str, int] | Order:  # JSON cannot tell these apart: it stays what JSON says
    return {"number": 7}


def anything() -> dict[str, object]:
    return {"number": 7, "nested": {"a": [1]}}


def unsaid():  # type: ignore[no-untyped-def]
    return {"number": 7}


@pytest.mark.parametrize("function", [one, several, model, numbered, indistinct, anything, unsaid])
async def test_a_result_comes_back_as_the_type_that_the_handler_returns(
    app: Unstuck, function: Callable[[], Any]
) -> None:
    handle = await app.task(function).enqueue()
    await burst(app)

    result = await handle.result(timeout=10)

    said = function()
    assert result == (await said if function is several else said)


async def test_each_answer_of_a_batch_comes_back_as_one_of_its_kind(app: Unstuck) -> None:
    @app.batch(5)
    async def orders(numbers: list[int]) -> list[Order | Exception]:
        return [Order(n, ORDER.when) if n else Permanent("no such order") for n in numbers]

    good, bad = await app.enqueue_many([orders.call(7), orders.call(0)])
    await burst(app)

    assert await good.result(timeout=10) == ORDER
    with pytest.raises(JobFailed, match="no such order"):
        await bad.result(timeout=10)


async def test_a_result_that_is_not_what_was_promised_is_reported_and_can_be_read_all_the_same(
    app: Unstuck,
) -> None:
    @app.task
    async def broken() -> Order:
        return {"number": "seven"}  # type: ignore[return-value]

    handle = await broken.enqueue()
    await burst(app)

    with pytest.raises(
        PayloadError,
        match=rf"job {handle.id}: its result does not fit the function's return annotation: .* at `\$.number`; job\(\)",
    ):
        await handle.result(timeout=10)
    assert (await handle.job()).result == {"number": "seven"}


async def test_a_handler_that_never_returns_can_be_a_task(app: Unstuck) -> None:
    @app.task
    async def never() -> NoReturn:
        raise Permanent("as always")

    handle = await never.enqueue()
    await burst(app)

    with pytest.raises(JobFailed, match="as always"):
        await handle.result(timeout=10)


async def test_a_job_is_found_by_its_id(app: Unstuck) -> None:
    handle = await app.task(one).enqueue()
    await burst(app)

    job = await app.job(handle.id)

    assert (job.status, job.result) == (Status.COMPLETED, {"number": 7, "when": "2027-01-31T00:00:00Z"})
    assert await app.job(handle.id, "default") == job
    with pytest.raises(UnknownJob, match="no job has the id 'nope'"):
        await app.job("nope")


def test_a_job_is_found_by_its_id_without_an_event_loop(tmp_path: Path) -> None:
    app = Unstuck(f"sqlite:///{tmp_path}/jobs.db")
    handle = app.task(one).enqueue_sync()

    assert app.job_sync(handle.id).status is Status.PENDING
    assert repr(handle) == f"SyncHandle(queue='default', id='{handle.id}')"
