"""Durable background jobs that never stay stuck.

The names below are imported when they are first used, so that the command answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstuck.app import Unstuck as Unstuck
    from unstuck.call import Call as Call
    from unstuck.classifier import classify as classify
    from unstuck.classifier import register as register
    from unstuck.context import Context as Context
    from unstuck.context import current_job as current_job
    from unstuck.context import current_jobs as current_jobs
    from unstuck.errors import ConfigError as ConfigError
    from unstuck.errors import Critical as Critical
    from unstuck.errors import JobError as JobError
    from unstuck.errors import JobFailed as JobFailed
    from unstuck.errors import JobPending as JobPending
    from unstuck.errors import PayloadError as PayloadError
    from unstuck.errors import Permanent as Permanent
    from unstuck.errors import QuotaExhausted as QuotaExhausted
    from unstuck.errors import RateLimited as RateLimited
    from unstuck.errors import SchemaError as SchemaError
    from unstuck.errors import Snooze as Snooze
    from unstuck.errors import StoreDamaged as StoreDamaged
    from unstuck.errors import StoreError as StoreError
    from unstuck.errors import StoreUnavailable as StoreUnavailable
    from unstuck.errors import Transient as Transient
    from unstuck.errors import UnknownJob as UnknownJob
    from unstuck.errors import UnreadableJob as UnreadableJob
    from unstuck.errors import UnstuckError as UnstuckError
    from unstuck.handle import Handle as Handle
    from unstuck.handle import SyncHandle as SyncHandle
    from unstuck.health import HealthStatus as HealthStatus
    from unstuck.jobs import Jobs as Jobs
    from unstuck.layout import Layout as Layout
    from unstuck.layout import Terms as Terms
    from unstuck.model import Category as Category
    from unstuck.model import Event as Event
    from unstuck.model import Failure as Failure
    from unstuck.model import Filter as Filter
    from unstuck.model import Job as Job
    from unstuck.model import Status as Status
    from unstuck.policy import Policy as Policy
    from unstuck.policy import Rate as Rate
    from unstuck.policy import Retry as Retry
    from unstuck.reaper import Reaper as Reaper
    from unstuck.schedule import Schedule as Schedule
    from unstuck.schedule import Scheduler as Scheduler
    from unstuck.stores import open_store as open_store
    from unstuck.task import Task as Task
    from unstuck.worker import Worker as Worker

_HOMES = {
    "app": "Unstuck",
    "call": "Call",
    "classifier": "classify register",
    "context": "Context current_job current_jobs",
    "errors": "ConfigError Critical JobError JobFailed JobPending PayloadError Permanent QuotaExhausted RateLimited SchemaError Snooze StoreDamaged StoreError StoreUnavailable Transient UnknownJob UnreadableJob UnstuckError",
    "handle": "Handle SyncHandle",
    "health": "HealthStatus",
    "jobs": "Jobs",
    "layout": "Layout Terms",
    "model": "Category Event Failure Filter Job Status",
    "policy": "Policy Rate Retry",
    "reaper": "Reaper",
    "schedule": "Schedule Scheduler",
    "stores": "open_store",
    "task": "Task",
    "worker": "Worker",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME)  # noqa: PLE0605 - a list of names, made from the table


def __getattr__(name: str) -> Any:
    if (module := _HOME.get(name)) is None:
        raise AttributeError(f"module 'unstuck' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"unstuck.{module}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
