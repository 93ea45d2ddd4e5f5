"""The same shop with Unstuck: shop_celery.txt has these tasks, in the same order, with Celery.

unstuck worker shop:app  # Celery needs a worker and a beat
"""

import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from unstuck import Depends, Exponential, Failure, Rate, Retry, Status, Unstuck, current_job


class Bank:
    def charge(self, customer: str, cents: int) -> str:
        return f"{customer} paid {cents}"


app = Unstuck(os.environ.get("SHOP_STORE", "sqlite:///shop.db"))
app.queue("media")
app.queue("geocoding", rate=Rate(10, per=60))


# link_error
@app.task
def apologise(id: str, task: str, failure: Failure) -> str:
    return f"{task} {id} failed: {failure.message}"


# autoretry: errors that are tried again, later and later
@app.task(
    retry=Retry(5, backoff=Exponential(1, 2, 600), on=(ConnectionError,), never=(ValueError,)),
    on_failure=apologise,
)
def charge(customer: str, cents: int, bank: Bank = Depends(Bank)) -> str:
    return bank.charge(customer, cents)


# countdown
@app.task
def remind(customer: str) -> str:
    return f"Dear {customer}, your cart is waiting"


# expires
@app.task
def offer(customer: str) -> str:
    return f"Dear {customer}, today only"


# eta
@app.task
def open_sale(name: str) -> str:
    return f"{name} is open"


# routes
@app.task(queue="media")
def resize(file: str, width: int) -> str:
    return f"{file} at {width}"


# beat
@app.task
def report(kind: str) -> str:
    return f"{kind} report"


app.schedule("nightly", report.call("daily"), cron="0 3 * * *", tz="Europe/Berlin")


# rate limit: of all workers together
@app.task(queue="geocoding")
def geocode(address: str) -> dict[str, Any]:
    return {"address": address, "found": True}


# results
@app.task
def price(items: int) -> dict[str, int]:
    return {"items": items, "cents": 250 * items}


# acks_late: a job whose worker dies runs again, always
@app.task
def ship(number: int) -> str:
    return f"order {number} is on its way"


# time limits: the process is ended, with all that it started
@app.task(isolate=True, timeout=30)
def convert(file: str) -> str:
    return subprocess.run(["cat", file], capture_output=True, text=True, check=True).stdout


# update_state
@app.task
def import_rows(rows: int) -> int:
    for row in range(rows):
        current_job().progress({"done": row, "of": rows})
        time.sleep(0.001)
    return rows


def checkout(customer: str, cents: int) -> str:
    paid = charge.enqueue_sync(customer, cents)
    offer.options(expires=600).enqueue_sync(customer)
    remind.options(delay=3600).enqueue_sync(customer)
    open_sale.options(run_at=datetime.now(UTC) + timedelta(days=1)).enqueue_sync("summer sale")
    return paid.id


def quote(items: int) -> dict[str, int]:
    return price.enqueue_sync(items).result(timeout=10)


def progress(id: str) -> Any:
    job = app.job_sync(id)
    return job.progress if job.status is Status.PROCESSING else job.status
