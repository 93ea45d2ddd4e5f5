"""Schedules: a report each night and a measurement each second, each of them once, however many workers there are.

unstuck worker reports:app
"""

import shutil
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from unstuck import Retry, Unstuck, current_job

BERLIN = ZoneInfo("Europe/Berlin")
app = Unstuck("sqlite:///reports.db")


@app.task(queue="reports", retry=Retry(attempts=5, backoff=(60, 600)))
def report() -> date:
    """Of the day before the slot it was enqueued for: also right if it comes late, or is tried again tomorrow."""
    slot = current_job().slot or datetime.now(BERLIN)  # by hand: enqueued without one
    return slot.astimezone(BERLIN).date() - timedelta(days=1)


@app.task(queue="measurements", retry=1, retention=1)  # kept for a day
def free_bytes() -> int:
    return shutil.disk_usage(".").free


app.schedule("nightly", report.call(), cron="30 2 * * *", tz="Europe/Berlin")
app.schedule(
    "disk", free_bytes.call(), every=timedelta(seconds=1), catch_up="none"
)  # what is missed is missed
