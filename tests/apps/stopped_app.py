"""When it gets SIGUSR1, is stopped in a transaction that keeps everybody from beating; recovers once it is woken."""

import asyncio
import signal
import sys
import threading
from typing import Any
from urllib.parse import unquote, urlsplit

from neo4j import AsyncGraphDatabase

from unstuck import Reaper, open_store
from unstuck.protocol.leases import Share
from unstuck.protocol.store import Store
from unstuck.stores.sqlite import steps


def stop(reaper: Reaper) -> None:
    print("stops", flush=True)
    reaper.scan_ms = None
    # To this thread: a signal to the process may be taken by another one, and this one goes on until then.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


async def stop_in_a_lease(store: Store, reaper: Reaper) -> None:
    """On SQLite whoever leases keeps all others from writing until it has committed."""
    lease = steps.lease

    def lease_and_stop(*given: Any) -> Any:
        answer = lease(*given)
        stop(reaper)
        return answer

    steps.lease = lease_and_stop  # type: ignore[assignment]
    await store.lease({"other": Share(60.0, 1)}, 1, "stopped")


async def stop_with_locks(url: str, reaper: Reaper) -> None:
    """On Neo4j a transaction that wrote to a node keeps all others from writing to it."""
    parts = urlsplit(url)
    auth = (unquote(parts.username or ""), unquote(parts.password or ""))
    async with (
        AsyncGraphDatabase.driver(f"{parts.scheme}://{parts.hostname}:{parts.port}", auth=auth) as driver,
        driver.session(database=parts.path.removeprefix("/")) as session,
        await session.begin_transaction() as transaction,
    ):
        await (await transaction.run("MATCH (job:Harness) SET job.id = job.id")).consume()
        stop(reaper)
        await transaction.commit()


async def main(url: str, kind: str) -> None:
    go_on = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go_on.set)
    async with open_store(url) as store, Reaper(store) as reaper:
        print("has recovered", flush=True)
        await go_on.wait()
        await (stop_in_a_lease(store, reaper) if kind == "sqlite" else stop_with_locks(url, reaper))
        while reaper.scan_ms is None:
            await asyncio.sleep(0.05)
        print("looked for leases that ran out", flush=True)
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
