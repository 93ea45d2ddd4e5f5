"""Durable background jobs that never stay stuck.

The names below are imported when they are first used, so that the command answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unstuck.text.platforms import refused

if TYPE_CHECKING:
    from unstuck.app.app import Unstuck as Unstuck
    from unstuck.app.call import Call as Call
    from unstuck.app.context import Context as Context
    from unstuck.app.context import current_job as current_job
    from unstuck.app.context import current_jobs as current_jobs
    from unstuck.app.dependencies import Depends as Depends
    from unstuck.app.handle import Handle as Handle
    from unstuck.app.handle import SyncHandle as SyncHandle
    from unstuck.app.schedule import Schedule as Schedule
    from unstuck.app.scheduler import Scheduler as Scheduler
    from unstuck.app.sync_jobs import SyncJobs as SyncJobs
    from unstuck.app.task import QueueOptions as QueueOptions
    from unstuck.app.task import Task as Task
    from unstuck.app.task import TaskOptions as TaskOptions
    from unstuck.config.environment import env_float as env_float
    from unstuck.config.environment import env_int as env_int
    from unstuck.config.environment import env_text as env_text
    from unstuck.config.policy import Policy as Policy
    from unstuck.config.policy import Rate as Rate
    from unstuck.config.retry import Exponential as Exponential
    from unstuck.config.retry import Retry as Retry
    from unstuck.operations.health import HealthStatus as HealthStatus
    from unstuck.operations.job_tables import JobTables as JobTables
    from unstuck.operations.jobs import Jobs as Jobs
    from unstuck.operations.metrics import exposition as exposition
    from unstuck.operations.metrics import serve_metrics as serve_metrics
    from unstuck.operations.overview import Overview as Overview
    from unstuck.operations.recovered import Recovered as Recovered
    from unstuck.operations.schedules import ScheduleStatus as ScheduleStatus
    from unstuck.protocol.classify import classify as classify
    from unstuck.protocol.classify import register as register
    from unstuck.protocol.errors import ConfigError as ConfigError
    from unstuck.protocol.errors import Critical as Critical
    from unstuck.protocol.errors import JobError as JobError
    from unstuck.protocol.errors import JobFailed as JobFailed
    from unstuck.protocol.errors import JobPending as JobPending
    from unstuck.protocol.errors import PayloadError as PayloadError
    from unstuck.protocol.errors import Permanent as Permanent
    from unstuck.protocol.errors import QuotaExhausted as QuotaExhausted
    from unstuck.protocol.errors import RateLimited as RateLimited
    from unstuck.protocol.errors import SchemaError as SchemaError
    from unstuck.protocol.errors import Snooze as Snooze
    from unstuck.protocol.errors import StoreDamaged as StoreDamaged
    from unstuck.protocol.errors import StoreError as StoreError
    from unstuck.protocol.errors import StoreUnavailable as StoreUnavailable
    from unstuck.protocol.errors import Transient as Transient
    from unstuck.protocol.errors import UnknownJob as UnknownJob
    from unstuck.protocol.errors import UnreadableJob as UnreadableJob
    from unstuck.protocol.errors import UnstuckError as UnstuckError
    from unstuck.protocol.fleet import WorkerInfo as WorkerInfo
    from unstuck.protocol.foreign import Stuck as Stuck
    from unstuck.protocol.job import Category as Category
    from unstuck.protocol.job import Enqueued as Enqueued
    from unstuck.protocol.job import Failure as Failure
    from unstuck.protocol.job import Job as Job
    from unstuck.protocol.job import Status as Status
    from unstuck.protocol.operators import Counts as Counts
    from unstuck.protocol.operators import Event as Event
    from unstuck.protocol.operators import Filter as Filter
    from unstuck.protocol.operators import Finding as Finding
    from unstuck.protocol.operators import Page as Page
    from unstuck.recovery.reaper import Reaper as Reaper
    from unstuck.stores import open_store as open_store
    from unstuck.stores.postgres.foreign.layout import Layout as Layout
    from unstuck.stores.postgres.foreign.terms import Terms as Terms
    from unstuck.stores.shared.urls import neo4j_url as neo4j_url
    from unstuck.text.logs import log_json as log_json
    from unstuck.worker.worker import Worker as Worker

_HOMES = {
    "app.app": "Unstuck",
    "app.call": "Call",
    "app.context": "Context current_job current_jobs",
    "app.dependencies": "Depends",
    "app.handle": "Handle SyncHandle",
    "app.schedule": "Schedule",
    "app.scheduler": "Scheduler",
    "app.sync_jobs": "SyncJobs",
    "app.task": "QueueOptions Task TaskOptions",
    "config.environment": "env_float env_int env_text",
    "config.policy": "Policy Rate",
    "config.retry": "Exponential Retry",
    "operations.health": "HealthStatus",
    "operations.job_tables": "JobTables",
    "operations.jobs": "Jobs",
    "operations.metrics": "exposition serve_metrics",
    "operations.overview": "Overview",
    "operations.recovered": "Recovered",
    "operations.schedules": "ScheduleStatus",
    "protocol.classify": "classify register",
    "protocol.errors": "ConfigError Critical JobError JobFailed JobPending PayloadError Permanent QuotaExhausted RateLimited SchemaError Snooze StoreDamaged StoreError StoreUnavailable Transient UnknownJob UnreadableJob UnstuckError",
    "protocol.fleet": "WorkerInfo",
    "protocol.foreign": "Stuck",
    "protocol.job": "Category Enqueued Failure Job Status",
    "protocol.operators": "Counts Event Filter Finding Page",
    "recovery.reaper": "Reaper",
    "stores": "open_store",
    "stores.postgres.foreign.layout": "Layout",
    "stores.postgres.foreign.terms": "Terms",
    "stores.shared.urls": "neo4j_url",
    "text.logs": "log_json",
    "worker.worker": "Worker",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME)  # noqa: PLE0605 - a list of names, made from the table


def __getattr__(name: str) -> Any:
    if (module := _HOME.get(name)) is None:
        raise AttributeError(f"module 'unstuck' has no attribute {name!r}")
    if why := refused():
        raise ImportError(why)
    found = globals()[name] = getattr(import_module(f"unstuck.{module}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
