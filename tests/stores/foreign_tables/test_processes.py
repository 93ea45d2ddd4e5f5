"""The whole of it with real processes: workers that are killed and frozen, a reaper service, and a row's history."""

import asyncio
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.command import COMMAND
from support.folders import IMPORTABLE
from support.processes import Child
from support.product import Product, types
from support.servers import free_port
from support.waiting import until_async

pytestmark = pytest.mark.anyio


def worker(shop: Product, folder: Path, name: str, *options: str) -> Child:
    env = {"SHOP": shop.url, "PYTHONPATH": IMPORTABLE}
    argv = [COMMAND, "worker", "tables_app:app", *options]
    return Child(argv, folder / f"{name}.log", env=env, cwd=folder)


async def held(shop: Product, id_: str, but: str = "") -> str:
    """By whom a row is held, once it is, and by somebody else."""

    async def found() -> str:
        row = await shop.row(id_)
        return row["locked_by"] if row["locked_by"] not in (None, but) else ""

    return str(await until_async(found, 20, "a worker to take the row"))


async def beaten(shop: Product, id_: str, times: int) -> None:
    seen = set()

    async def enough() -> bool:
        seen.add((await shop.row(id_))["last_heartbeat_at"])
        return len(seen) > times

    await until_async(enough, 20, f"{times} beats")


async def run_out(shop: Product) -> None:
    await shop.say(
        "UPDATE jobs SET lease_expires_at = now() - interval '1 s', last_heartbeat_at = now() - interval '1.5 s'"
    )


async def wait_over(shop: Product) -> None:
    await shop.say("UPDATE jobs SET next_earliest_run_at = now()")


def fences(events: list[dict[str, Any]]) -> list[int]:
    return [event["details"]["fence"] for event in events if event["type"] == "leased"]


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
    return text


@pytest.mark.accepts("REAP-003", "REAP-100")
async def test_a_row_outlives_killed_and_frozen_workers_and_ends_once(shop: Product, tmp_path: Path) -> None:
    id_ = await shop.add(source_key="a.mp4")
    reaper = [COMMAND, "reap", "--store", shop.url, "--table", "jobs", "--interval", "1"]
    port = free_port()
    reaper += ["--metrics-port", str(port)]
    with (
        Child(reaper, tmp_path / "reaper.log") as service,
        worker(shop, tmp_path, "first", "--processes", "0", "--recovery", "0") as first,
    ):
        killed = await held(shop, id_)
        await beaten(shop, id_, 2)
        left = await shop.left(id_, "lease_expires_at")
        assert left is not None
        assert 790 < left <= 800  # burn-in: eight times what it is expected to take
        first.kill()
        await run_out(shop)
        await service.until_line_async("recovered 1 jobs", 20)
        wait = await shop.left(id_, "next_earliest_run_at")
        assert wait is not None
        assert 20 < wait <= 36

        with worker(shop, tmp_path, "second", "--processes", "0", "--recovery", "0") as second:
            await wait_over(shop)
            frozen = await held(shop, id_, killed)
            await beaten(shop, id_, 1)
            second.pause()
            await run_out(shop)

            async def put_back() -> bool:
                return await shop.status(id_) == "queued"

            await until_async(put_back, 20, "the reaper to act again")
            (tmp_path / "go").touch()
            with worker(shop, tmp_path, "third", "--processes", "0") as third:
                await wait_over(shop)

                async def done() -> bool:
                    return await shop.status(id_) == "done"

                await until_async(done, 20, "the third worker to finish it")
                second.resume()  # its work is done, too, but nobody wants it any more
                await second.until_line_async("lost", 20)
                third.terminate()
                third.wait(20)
        metrics = await asyncio.to_thread(scraped, port)
        assert 'reaper_requeues_total{queue="jobs"} 2.0' in metrics
        assert 'reaper_failures_total{queue="jobs"} 0.0' in metrics
        assert 'reaper_scan_duration_ms{worker="reaper-' in metrics
        service.terminate()
        assert service.wait(20) == 0

    row, events = await shop.row(id_), await shop.events(id_)
    assert (row["status"], row["attempt_count"], row["locked_by"]) == ("done", 3, None)
    assert types(events) == ["leased", "reaper:requeued"] * 2 + ["leased", "completed"]
    assert len(set(fences(events))) == 3
    owners = [event["details"]["owner"] for event in events if event["type"] == "reaper:requeued"]
    assert owners == [killed.partition("#")[0], frozen.partition("#")[0]]


async def test_a_supervisor_ends_the_leases_of_a_dead_worker_at_once(shop: Product, tmp_path: Path) -> None:
    id_ = await shop.add(source_key="a.mp4")
    with worker(shop, tmp_path, "supervised") as supervisor:
        holder = (await held(shop, id_)).partition("#")[0]
        pid = int(holder.rsplit("-", 2)[1])
        assert pid in supervisor.family()
        os.kill(pid, signal.SIGKILL)

        async def told() -> bool:
            return "crash:requeued" in types(await shop.events(id_))

        await until_async(told, 10, "the supervisor to end its lease")
    [event] = [event for event in await shop.events(id_) if event["type"] == "crash:requeued"]
    assert event["details"]["message"].endswith("died: signal SIGKILL")
