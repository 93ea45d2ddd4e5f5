"""What rows of somebody else's table cannot carry: a worker says so before it starts, instead of leaving it out."""

from typing import Any

import pytest
from support.product import TABLES, Product

from unstuck import ConfigError, Unstuck, Worker

pytestmark = pytest.mark.anyio


async def clip() -> None: ...


async def report(which: str, task: str, why: object) -> None: ...


@pytest.mark.parametrize("option", ["expires", "on_failure"])
async def test_a_worker_refuses_a_task_whose_rows_would_not_carry_its_options(
    shop: Product, option: str
) -> None:
    async with Unstuck(shop.url + TABLES) as app:
        given: dict[str, Any] = {"expires": 60, "on_failure": app.task(report)}
        app.task(queue="jobs", **{option: given[option]})(clip)

        with pytest.raises(ConfigError, match=f"'clip' has {option}, and its queue 'jobs' is a table"):
            await Worker(app, burst=True).run()


async def test_tasks_of_other_queues_beside_the_table_have_them(shop: Product) -> None:
    async with Unstuck(shop.url + TABLES) as app:
        app.task(queue="ours", expires=60, on_failure=app.task(report))(clip)

        await Worker(app, burst=True).run()
