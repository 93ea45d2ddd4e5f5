"""What the rest of the machine does meanwhile: measured, waited for, and told with the results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

CALM = 0.3  # of one core
_STAT = Path("/proc/stat")


def nobody() -> float:
    """The processor seconds of no servers."""
    return 0.0


class Noise:
    """Cores that others use from now on; 0 where the system does not say.

    ``servers`` says how many processor seconds servers have used that belong to what is measured.
    """

    def __init__(self, servers: Callable[[], float] = nobody) -> None:
        self._servers = servers
        self._at, self._others = time.monotonic(), self._used()

    def cores(self) -> float:
        return max(0.0, (self._used() - self._others) / (time.monotonic() - self._at))

    def _used(self) -> float:
        return _others() - self._servers()


def wait_for_calm(patience: float) -> None:
    """Return when others leave the machine alone, or when patience is at its end."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        noise = Noise()
        time.sleep(0.5)
        if noise.cores() < CALM:
            return


def _others() -> float:
    """Processor seconds of all but this process and the children it has waited for."""
    try:
        ticks = [int(word) for word in _STAT.read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0.0
    own = os.times()
    busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")  # all but idle and iowait
    return busy - own.user - own.system - own.children_user - own.children_system
