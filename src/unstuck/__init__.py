"""Durable background jobs that never stay stuck."""

from unstuck.app import Unstuck
from unstuck.call import Call
from unstuck.classify import classify, register
from unstuck.context import Context, current_job, current_jobs
from unstuck.errors import (
    ConfigError,
    Critical,
    JobError,
    JobFailed,
    JobPending,
    PayloadError,
    Permanent,
    QuotaExhausted,
    RateLimited,
    SchemaError,
    Snooze,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    Transient,
    UnknownJob,
    UnstuckError,
)
from unstuck.handle import Handle, SyncHandle
from unstuck.health import HealthStatus
from unstuck.jobs import Jobs
from unstuck.model import Category, Event, Failure, Filter, Job, Status
from unstuck.policy import Policy, Rate, Retry
from unstuck.reaper import Reaper
from unstuck.schedule import Schedule, Scheduler
from unstuck.stores import open_store
from unstuck.task import Task
from unstuck.worker import Worker

__all__ = [
    "Call",
    "Category",
    "ConfigError",
    "Context",
    "Critical",
    "Event",
    "Failure",
    "Filter",
    "Handle",
    "HealthStatus",
    "Job",
    "JobError",
    "JobFailed",
    "JobPending",
    "Jobs",
    "PayloadError",
    "Permanent",
    "Policy",
    "QuotaExhausted",
    "Rate",
    "RateLimited",
    "Reaper",
    "Retry",
    "Schedule",
    "Scheduler",
    "SchemaError",
    "Snooze",
    "Status",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "SyncHandle",
    "Task",
    "Transient",
    "UnknownJob",
    "Unstuck",
    "UnstuckError",
    "Worker",
    "classify",
    "current_job",
    "current_jobs",
    "open_store",
    "register",
]
