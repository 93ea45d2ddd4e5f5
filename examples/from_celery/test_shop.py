"""What the tasks did with Celery they do with Unstuck. Celery itself is not needed.

pytest test_shop.py
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from time import sleep

import pytest
import shop

from unstuck import Filter, Job, JobFailed, Status
from unstuck.testing import SyncInline, inline

HERE = Path(__file__).parent


class Moody(shop.Bank):
    """Fails as often as it is told to."""

    hangs_up = 0

    def charge(self, customer: str, cents: int) -> str:
        if cents < 0:
            raise ValueError("nothing to pay")
        if Moody.hangs_up > 0:
            Moody.hangs_up -= 1
            raise ConnectionError("the bank hung up")
        return super().charge(customer, cents)


@pytest.fixture
def jobs() -> Iterator[SyncInline]:
    with inline(shop.app, dependencies={shop.Bank: Moody}) as jobs:
        yield jobs


def of(jobs: SyncInline, task: str) -> Job:
    [job] = jobs.jobs.find(Filter(task=task), 10).jobs
    return job


def test_both_have_the_same_tasks_in_the_same_order() -> None:
    found = re.compile(r"^@app\.task.*?^def (\w+)\(", re.MULTILINE | re.DOTALL)
    before, after = ((HERE / name).read_text() for name in ("shop_celery.txt", "shop.py"))

    assert found.findall(before) == found.findall(after) == list(shop.app.tasks)


def test_link_error(jobs: SyncInline) -> None:
    job = shop.charge.enqueue_sync("bob", -1)
    jobs.run()
    assert job.status() is Status.FAILED
    assert of(jobs, "apologise").result == f"charge {job.id} failed: nothing to pay"


def test_autoretry(jobs: SyncInline) -> None:
    Moody.hangs_up = 3
    job = shop.charge.enqueue_sync("ann", 995)
    jobs.run()
    assert job.status() is Status.PENDING  # one second, then two, then four
    jobs.run(ahead=60)
    assert (job.result(timeout=0), job.job().attempts) == ("ann paid 995", 4)


def test_countdown_and_eta(jobs: SyncInline) -> None:
    began = datetime.now(UTC)
    shop.checkout("ann", 995)
    jobs.run()

    reminder, sale = of(jobs, "remind"), of(jobs, "open_sale")
    assert of(jobs, "charge").result == "ann paid 995"
    assert {reminder.status, sale.status} == {Status.PENDING}
    assert reminder.run_at - began >= timedelta(hours=1)
    assert sale.run_at - began >= timedelta(days=1)
    jobs.run(ahead=2 * 86_400)
    assert of(jobs, "remind").result == "Dear ann, your cart is waiting"
    assert of(jobs, "open_sale").result == "summer sale is open"


def test_expires(jobs: SyncInline) -> None:
    late = shop.offer.options(expires=0.01).enqueue_sync("ann")
    while (expires_at := late.job().expires_at) is None or datetime.now(UTC) <= expires_at:
        sleep(0.01)
    early = shop.offer.options(expires=600).enqueue_sync("bob")
    jobs.run()
    assert early.result(timeout=0) == "Dear bob, today only"
    assert late.job().attempts == 0


def test_routes(jobs: SyncInline) -> None:
    job = shop.resize.enqueue_sync("a.png", 640)
    jobs.run()
    assert (job.queue, job.result(timeout=0)) == ("media", "a.png at 640")


def test_beat(jobs: SyncInline) -> None:
    nightly = shop.app.schedules["nightly"]
    assert (nightly.cron, nightly.tz) == ("0 3 * * *", "Europe/Berlin")
    job = shop.report.options(key="schedule:nightly:2026-03-29T01:00:00+00:00").enqueue_sync("daily")
    jobs.run()
    assert job.result(timeout=0) == "daily report"


def test_rate_limit(jobs: SyncInline) -> None:
    shop.app.enqueue_many_sync([shop.geocode.call(f"street {n}") for n in range(12)])
    jobs.run()
    assert jobs.jobs.get_queue_status("geocoding")["completed"] == 10
    jobs.run(ahead=120)
    assert jobs.jobs.get_queue_status("geocoding")["completed"] == 12


def test_results(jobs: SyncInline) -> None:
    found: list[dict[str, int]] = []
    asking = Thread(target=lambda: found.append(shop.quote(3)))
    asking.start()
    while asking.is_alive():
        jobs.run()
    assert found == [{"items": 3, "cents": 750}]


def test_acks_late(tmp_path: Path) -> None:
    """The worker of the first attempt is killed; the supervisor starts another, which runs the job again."""
    (tmp_path / "dying.py").write_text(
        "import os, shop\n"
        "from unstuck import current_job\n"
        "app = shop.app\n"
        "@app.middleware\n"
        "async def die(job, call_next):\n"
        "    if job.attempt == 1:\n"
        "        os._exit(9)\n"
        "    return await call_next()\n"
    )
    store = f"sqlite:///{tmp_path}/shop.db"
    environment = os.environ | {"PYTHONPATH": f"{HERE}:{tmp_path}", "SHOP_STORE": store}

    def python(*argv: str) -> str:
        run = [sys.executable, *argv]
        return subprocess.run(
            run, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    id_ = python("-c", "import shop; print(shop.ship.enqueue_sync(5).id)").strip()
    python("-m", "unstuck", "worker", "dying:app", "--until-idle")
    job = json.loads(python("-m", "unstuck", "job", id_, "--store", store, "--json"))["job"]
    assert (job["result"], job["attempts"], job["crashes"]) == ("order 5 is on its way", 2, 1)


def test_time_limits(jobs: SyncInline, tmp_path: Path) -> None:
    (tmp_path / "clip").write_text("moving pictures")
    job = shop.convert.enqueue_sync(str(tmp_path / "clip"))
    os.mkfifo(tmp_path / "endless")
    endless = shop.convert.options(timeout=0.5, retry=1).enqueue_sync(str(tmp_path / "endless"))
    jobs.run()
    assert job.result(timeout=0) == "moving pictures"
    with pytest.raises(JobFailed, match=r"took longer than 0\.5 s"):
        endless.result(timeout=0)


def test_update_state(jobs: SyncInline) -> None:
    job = shop.import_rows.enqueue_sync(5)
    assert shop.progress(job.id) == "pending"
    jobs.run()
    assert (job.result(timeout=0), shop.progress(job.id)) == (5, "completed")


def test_an_error_that_is_not_tried_again(jobs: SyncInline) -> None:
    job = shop.charge.enqueue_sync("bob", -1)
    jobs.run(ahead=600)
    with pytest.raises(JobFailed, match="nothing to pay"):
        job.result(timeout=0)
