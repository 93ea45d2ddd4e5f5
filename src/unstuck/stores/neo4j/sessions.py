"""DriverSessions: opens sessions of the driver, and replaces the driver when it has lost track of its connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from neo4j import AsyncDriver, AsyncGraphDatabase, AsyncSession

from unstuck.stores.neo4j.address import Neo4jAddress

# The driver also raises what it logs: without this handler it would be printed twice where logging is not set up.
logging.getLogger("neo4j").addHandler(logging.NullHandler())
MOST = 8  # connections of one store; a call that needs another one waits


class DriverSessions:
    """The driver, and the cleanup after a reset connection that the driver omits.

    A closed transport of uvloop raises RuntimeError where one of asyncio raises an OSError. The driver expects
    only the latter: it passes the error on, and may count the connection as in use for ever.
    """

    def __init__(self, address: Neo4jAddress, patience: float) -> None:
        self._address = address
        self._patience = patience
        self._driver = self._new()
        self._used: dict[AsyncDriver, int] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._open = True

    @contextlib.asynccontextmanager
    async def session(self, database: str) -> AsyncIterator[AsyncSession]:
        """A session that raises only errors of the driver, and OSErrors for failures of the network."""
        driver = self._driver
        session = driver.session(database=database, fetch_size=-1)
        self._used[driver] = self._used.get(driver, 0) + 1
        try:
            async with session:
                yield session
        except RuntimeError as error:
            if (
                type(error) is not RuntimeError
            ):  # NotImplementedError, RecursionError: not caused by the network
                raise
            session.cancel()  # closes its connection and returns it to the pool
            await session.close()
            self._replace(driver)
            raise ConnectionResetError(str(error)) from error
        finally:
            self._leave(driver)

    async def close(self) -> None:
        self._open = False
        for driver in {*self._used, self._driver}:
            self._retire(driver)
        await asyncio.gather(*self._closing)

    def _new(self) -> AsyncDriver:
        return AsyncGraphDatabase.driver(
            self._address.uri,
            auth=self._address.auth,
            max_connection_pool_size=MOST,
            connection_acquisition_timeout=self._patience,
            connection_timeout=10.0,
            max_transaction_retry_time=0.0,
            notifications_min_severity="OFF",
            telemetry_disabled=True,
            user_agent="unstuck",
        )

    def _replace(self, driver: AsyncDriver) -> None:
        if (
            self._open and driver is self._driver
        ):  # otherwise another session of the same pool has replaced it
            self._driver = self._new()

    def _leave(self, driver: AsyncDriver) -> None:
        self._used[driver] -= 1
        if not self._used[driver]:
            del self._used[driver]
            if self._open and driver is not self._driver:
                self._retire(driver)

    def _retire(self, driver: AsyncDriver) -> None:
        task = asyncio.create_task(_close(driver))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(driver: AsyncDriver) -> None:
    # Closing stops at the first connection that uvloop has closed already; a second call has none left and completes.
    with contextlib.suppress(RuntimeError):
        await driver.close()
    await driver.close()
