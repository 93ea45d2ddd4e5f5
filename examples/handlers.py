"""Three kinds of handlers, what each is for, and which errors are worth another attempt.

unstuck worker handlers:app
python handlers.py
"""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from unstuck import Category, JobFailed, Retry, Unstuck, current_job, register

app = Unstuck("sqlite:///handlers.db")


@dataclass
class Receipt:
    customer: str
    cents: int
    attempt: int


class CardDeclined(Exception):
    """Will be declined the next time, too."""


register(CardDeclined, Category.PERMANENT)


@app.task(queue="payments", retry=Retry(attempts=5, backoff=(0.5, 10, 60)))
async def charge(customer: str, cents: int) -> Receipt:
    """On the event loop: waits for others most of the time."""
    attempt = current_job().attempt
    if cents > 100_000:
        raise CardDeclined(f"{customer} cannot pay {cents}")  # fails at once
    if attempt == 1:
        raise ConnectionResetError("the bank hung up")  # may pass: tried again in half a second
    return Receipt(customer, cents, attempt)


@app.task(queue="files")
def count_words(file: str) -> int:
    """In a thread: files block whoever reads them."""
    words, lines = 0, Path(file).read_text().splitlines()
    for number, line in enumerate(lines, 1):
        words += len(line.split())
        current_job().progress(number / len(lines))
    return words


@app.task(queue="patterns", isolate=True, timeout=1, retry=1)
def matches(pattern: str, text: str) -> bool:
    """In a process of its own, which can be killed: some patterns hold the interpreter for ever."""
    return re.fullmatch(pattern, text) is not None


async def main() -> None:
    async with app:
        declined = await charge.enqueue("bob", 200_000)
        endless = await matches.enqueue("(a+)+", "a" * 40 + "!")
        paid = await charge.enqueue("ann", cents=995)
        counted = await count_words.enqueue(__file__)
        print((await paid.result(timeout=60)).attempt, await counted.result(timeout=60) > 100)
        for job in (declined, endless):
            try:
                await job.result(timeout=60)
            except JobFailed as error:
                print(error.failure.code, "-", error.failure.message)


if __name__ == "__main__":
    asyncio.run(main())
