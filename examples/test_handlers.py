"""Tests of your own tasks: no server, no worker process, no waiting for retries.

pytest test_handlers.py
"""

import asyncio
from pathlib import Path

import pytest
from handlers import Receipt, app, charge, count_words

from unstuck import JobFailed
from unstuck.testing import inline


def test_a_payment_survives_a_bank_that_hangs_up() -> None:
    async def play() -> None:
        async with inline(app) as jobs:  # an empty store of its own; the real one is not touched
            job = await charge.enqueue("ann", 995)
            await jobs.run(ahead=60)  # what comes due in the next minute, too: the retry
            assert await job.result() == Receipt("ann", 995, attempt=2)

    asyncio.run(play())


def test_a_card_that_is_declined_is_not_tried_again() -> None:
    async def play() -> None:
        async with inline(app) as jobs:
            job = await charge.enqueue("bob", 200_000)
            await jobs.run(ahead=60)
            with pytest.raises(JobFailed, match="bob cannot pay 200000"):
                await job.result()
            assert (await job.job()).attempts == 1

    asyncio.run(play())


def test_words_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear Ann,\nhow are you?\n")

    async def play() -> None:
        async with inline(app) as jobs:
            job = await count_words.enqueue(str(file))
            await jobs.run()
            assert await job.result() == 5

    asyncio.run(play())
