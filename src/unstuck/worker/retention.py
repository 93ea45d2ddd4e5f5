"""Retention: deletes finished jobs when their days are over. Any number of them may run."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping

from unstuck.config.checks import number
from unstuck.config.environment import env_int, env_text
from unstuck.config.policy import Policy
from unstuck.operations.jobs import Jobs
from unstuck.protocol.errors import ConfigError, StoreError
from unstuck.protocol.store import Store

log = logging.getLogger("unstuck.upkeep")

FEWEST, MOST = 7, 30  # days that a variable may have
FIRST_PAUSE = 1.0  # seconds at most, so that workers that start together do not clean up together


def retention(policies: Mapping[str, Policy], environ: Mapping[str, str]) -> dict[str, float]:
    """For how many days each queue keeps finished jobs; one that keeps them for ever is left out.

    Call it before a worker takes anything: a queue that names a variable needs it to be set.
    """
    days: dict[str, float] = {}
    for queue, policy in policies.items():
        if variable := policy.retention_from:
            days[queue] = _days(queue, variable, environ)
        elif policy.retention is not None:
            days[queue] = policy.retention
    return days


def _days(queue: str, variable: str, environ: Mapping[str, str]) -> int:
    if env_text(environ, variable) is None:
        raise ConfigError(
            f"{variable} is not set: a worker of queue {queue!r} needs it to say for how many days finished "
            f"jobs are kept, a whole number from {FEWEST} to {MOST}, for example {variable}=14"
        )
    days = env_int(environ, variable, least=FEWEST, most=MOST)
    assert days is not None
    return days


class Retention:
    """``days`` are those of ``retention()``."""

    def __init__(self, store: Store, days: Mapping[str, float], every: float = 3600.0) -> None:
        self._jobs = Jobs(store)
        self._days = dict(days)
        self._every = number("every", every, 0.05, 86400.0)

    async def run(self) -> None:
        """Clean up at once, then every so many seconds, until cancelled."""
        pause = min(FIRST_PAUSE, self._every)
        while self._days:
            await asyncio.sleep(random.uniform(0.0, pause))  # noqa: S311 - not a secret
            await self.clean()
            await asyncio.sleep(self._every - pause / 2)

    async def clean(self) -> int:
        """Delete what is due now; returns how many jobs that were. A queue that fails does not stop the others."""
        deleted: dict[str, int] = {}
        for queue, days in self._days.items():
            try:
                deleted[queue] = await self._jobs.cleanup_jobs(days, queue)
            except StoreError as error:
                log.warning("cleanup of queue %r failed, will try again: %s", queue, error)
            except Exception:
                log.exception("cleanup of queue %r failed, will try again", queue)
        total = sum(deleted.values())
        log.info("deleted %d finished jobs that were past their days", total, extra={"deleted": deleted})
        return total
