"""Terms: how long the rows of a table are leased, how often they are tried and how long they wait in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from unstuck.config.checks import LONGEST_LEASE, YEAR
from unstuck.config.environment import env_float, env_int, env_text
from unstuck.protocol.errors import ConfigError

SHORTEST_LEASE = 30.0  # a shorter one would not outlast two missed beats of 12 seconds
GROWTH = 4  # each delay is this many times the one before
_LONGEST_MS = round(YEAR * 1000)
_ATTEMPTS = ("JOB_MAX_ATTEMPTS", "QUEUE_MAX_ATTEMPTS")
_LEASES = ("JOB_LEASE_SEC", "QUEUE_VISIBILITY_SEC")
_BASES = ("JOB_BACKOFF_MS_BASE", "QUEUE_RETRY_BACKOFF_MS_BASE")
_LIMITS = ("JOB_BACKOFF_MS_MAX", "QUEUE_RETRY_BACKOFF_MS_MAX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Settings for rows that do not have their own.

    A lease lasts ``lease`` seconds, and at least ``factors[stage]`` times as long as the row is expected to take.
    """

    max_attempts: int = 3
    backoff: tuple[float, ...] = (30.0, 120.0, 600.0)
    lease: float = 300.0
    factors: Mapping[str, float] = field(
        default_factory=lambda: {"clip": 6.0, "asr": 12.0, "burnin": 8.0}, hash=False
    )

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """The terms that the environment sets: a ``JOB_…`` variable wins over its ``QUEUE_…`` counterpart; without both, the default is used."""
        usual = cls()
        return cls(
            max_attempts=env_int(environ, *_ATTEMPTS, least=1, most=1000) or usual.max_attempts,
            backoff=_backoff(environ) or usual.backoff,
            lease=env_float(environ, *_LEASES, least=SHORTEST_LEASE, most=LONGEST_LEASE) or usual.lease,
            factors={
                stage: _factor(environ, f"{stage.upper()}_SLA_FACTOR") or factor
                for stage, factor in usual.factors.items()
            },
        )


def _factor(environ: Mapping[str, str], variable: str) -> float | None:
    return env_float(environ, variable, least=1.0, most=1000.0, unit="times the expected duration")


def _backoff(environ: Mapping[str, str]) -> tuple[float, ...]:
    """Each delay is four times the one before, from the base up to the maximum; empty if neither is set."""
    base, limit = (env_int(environ, *names, least=1, most=_LONGEST_MS) for names in (_BASES, _LIMITS))
    if base is None and limit is None:
        return ()
    first = base or min(30_000, limit or 30_000)
    last = limit or max(600_000, first)
    if last < first:
        raise ConfigError(
            f"{_set(environ, _LIMITS)} is {last}, but the first delay is {first} ms "
            f"({_set(environ, _BASES)}): the longest must be at least the first"
        )
    steps = [first]
    while steps[-1] < last:
        steps.append(min(GROWTH * steps[-1], last))
    return tuple(step / 1000 for step in steps)


def _set(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The variable that holds the value."""
    return next(name for name in names if env_text(environ, name))
