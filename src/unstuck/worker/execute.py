"""perform(): run leased jobs of one task, and return how their leases are to end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from unstuck.app import tracing
from unstuck.app.context import Context, enter
from unstuck.app.handler import Handler
from unstuck.app.hooks import Middleware
from unstuck.app.payload import dropped, record
from unstuck.config.checks import shown
from unstuck.config.policy import Policy
from unstuck.protocol.classify import Class, Refusal, classify, failure, unfit
from unstuck.protocol.errors import PayloadError, Snooze
from unstuck.protocol.job import Category, Failure, Job, NewJob
from unstuck.protocol.outcome import Outcome, completed, released
from unstuck.protocol.retry import fate, judge_child
from unstuck.recovery.reports import log_failure
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.isolation.child import Remote
from unstuck.worker.isolation.parent import Crashed
from unstuck.worker.permit import NoToken
from unstuck.worker.rate_limits import RateLimits
from unstuck.worker.runners import Contexts, Runners, isolated

log = logging.getLogger("unstuck.worker")
QUOTA_REST = 1.0  # seconds in which nothing more is started, until the pause is known to all
LONGEST_UNKNOWN = 300.0  # seconds between two tries of a task that is not known
SHORTEST_REFUSAL = 1.0  # seconds to stay away when somebody asks us to, and not for how long


@dataclass(frozen=True, slots=True)
class Runtime:
    """What handlers are run with: how they are called, inside of which middlewares, and under which limits."""

    runners: Runners
    limits: RateLimits
    held: HeldLeases
    middlewares: Sequence[Middleware] = ()

    @property
    def worker(self) -> str:
        return self.held.worker

    def refused(self, queue: str, seconds: float) -> None:
        """A provider asked us to stay away: nothing more of the queue is started, by any worker."""
        self.limits.close(queue, seconds)
        self.held.give_back_queue(queue)


async def perform(handler: Handler | None, context: Context, policy: Policy, runtime: Runtime) -> Outcome:
    """Run one job. Raises CancelledError only if the worker itself cancelled it."""
    if handler is None:
        return _unknown(context.job)
    if context.job.foreign:
        _log_ignored(handler, context)
    arguments: dict[str, Any] = {}
    if not isolated(handler, context):
        try:
            arguments = handler.read(context.job)
        except BaseException as error:  # noqa: BLE001 - models run code of their own
            return _invalid(context, error, "invalid_payload", runtime)
        if handler.batch:
            items = list(arguments.values())
            return (await _together(handler, (context,), items, policy, runtime))[context.id]
    try:
        result = await _call(handler, arguments, (context,), runtime)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and context.cancelled:
            raise
        # Whatever else a handler raises is the job's failure, not the worker's.
        return _judge(handler, context, error, policy, runtime)
    return _completed(handler, context, result, runtime)


async def perform_batch(
    handler: Handler, contexts: Contexts, policy: Policy, runtime: Runtime
) -> list[Outcome]:
    """Run several jobs as one; an outcome for each, in order.

    If they fail as a whole, for good, they are run again one by one: only the culprit fails.
    """
    found: dict[str, Outcome] = {}
    items: list[Any] = []
    fit: list[Context] = []
    for context in contexts:
        if context.job.foreign:
            _log_ignored(handler, context)
        try:
            items += handler.read(context.job).values()
            fit.append(context)
        except BaseException as error:  # noqa: BLE001 - models run code of their own
            found[context.id] = _invalid(context, error, "invalid_payload", runtime)
    found |= await _together(handler, tuple(fit), items, policy, runtime) if fit else {}
    return [found[context.id] for context in contexts]


async def _together(
    handler: Handler, contexts: Contexts, items: list[Any], policy: Policy, runtime: Runtime
) -> dict[str, Outcome]:
    [name] = handler.arguments.names
    try:
        answers = handler.answers(await _call(handler, {name: items}, contexts, runtime), len(items))
    except BaseException as error:
        # One of them alone may be lost, the rest goes on.
        if isinstance(error, asyncio.CancelledError) and all(context.cancelled for context in contexts):
            raise
        category = classify(error, handler.errors).category
        if category is Category.CRITICAL and len(contexts) > 1:
            return _halted(handler, contexts, error, policy, runtime)
        if len(contexts) == 1 or category is not Category.PERMANENT:
            first = contexts[0]
            return {
                each.id: _judge(handler, each, error, policy, runtime, quiet=each is not first)
                for each in contexts
            }
        why = failure(error, handler.errors)
        log.warning(
            "a batch of %d %s jobs failed, so that each is run once more, alone: %s: %s",
            len(items),
            handler.task,
            why.code,
            why.message[:300],
        )
        found: dict[str, Outcome] = {}
        for context, item in zip(contexts, items, strict=True):
            if context.cancelled:  # lost meanwhile: whatever its outcome is, it will be refused
                found[context.id] = released(context.job.lease, why="lost")
                continue
            context.permit = await runtime.limits.one(context.job.queue)
            found |= await _together(handler, (context,), [item], policy, runtime)
        return found
    logged: set[int] = set()  # several jobs may have met the same error
    ended: dict[str, Outcome] = {}
    for context, answer in zip(contexts, answers, strict=True):
        if isinstance(answer, BaseException):
            ended[context.id] = _judge(handler, context, answer, policy, runtime, quiet=id(answer) in logged)
            logged.add(id(answer))
        else:
            ended[context.id] = _completed(handler, context, answer, runtime)
    return ended


def _halted(
    handler: Handler, contexts: Contexts, error: BaseException, policy: Policy, runtime: Runtime
) -> dict[str, Outcome]:
    """One job fails and carries the error; the others are not to blame, and wait until somebody has looked."""
    first, *others = contexts
    spared = {
        context.id: released(context.job.lease, why="the batch met a CRITICAL error") for context in others
    }
    return spared | {first.id: _judge(handler, first, error, policy, runtime)}


def _call(
    handler: Handler, arguments: dict[str, Any], contexts: Contexts, runtime: Runtime
) -> Awaitable[Any]:
    if not runtime.middlewares and not handler.middlewares and tracing.off():
        return runtime.runners.run(handler, arguments, contexts)
    return _call_inside(handler, arguments, contexts, runtime)


async def _call_inside(
    handler: Handler, arguments: dict[str, Any], contexts: Contexts, runtime: Runtime
) -> Any:
    """Inside of a span and of all middleware, for which these are the current jobs, too."""
    enter(contexts)
    call: Callable[[], Awaitable[Any]] = partial(runtime.runners.run, handler, arguments, contexts)
    for middleware in reversed((*runtime.middlewares, *handler.middlewares)):
        call = partial(middleware, contexts[0], call)
    with tracing.span(contexts[0].job):
        return await call()


def _judge(
    handler: Handler,
    context: Context,
    error: BaseException,
    policy: Policy,
    runtime: Runtime,
    *,
    quiet: bool = False,
) -> Outcome:
    """What becomes of a job whose handler raised. A refusal of a whole batch is logged once: for the rest, ``quiet``."""
    job = context.job
    if isinstance(error, NoToken):
        return released(job.lease, why=str(error))
    if isinstance(error, Crashed):
        outcome = judge_child(
            job, error.cause, str(error), pid=error.pid, worker=runtime.worker, jitter=_chance()
        )
        return _logged(context, outcome, runtime)
    if isinstance(error, Remote):
        found, why, snooze = error.raised.found, error.raised.failure, error.raised.snooze
    else:
        found, why = classify(error, handler.errors), failure(error, handler.errors)
        snooze = error.seconds if isinstance(error, Snooze) else None
    if snooze is not None:
        return released(job.lease, snooze, why="snoozed by its handler")
    if found.refusal is not None:
        return _refused(job, found, why, policy, runtime, quiet=quiet)
    why = msgspec.structs.replace(why, attempt=job.attempts, worker=runtime.worker)
    return _logged(context, fate(job, why, delay=found.delay, jitter=_chance()), runtime)


def _refused(
    job: Job, found: Class, why: Failure, policy: Policy, runtime: Runtime, *, quiet: bool
) -> Outcome:
    """The other side refuses us, whatever we ask: nothing is spent, and all workers stay away."""
    facts = {"jobId": job.id, "queue": job.queue}
    if found.refusal is Refusal.QUOTA:
        reason = f"quota exhausted: {why.message[:300]}"
        if not quiet:
            log.error("queue %s is paused: %s", job.queue, reason, extra=facts)
        runtime.refused(job.queue, QUOTA_REST)
        return released(job.lease, why=reason, pause=reason)
    usual = policy.rate.per if policy.rate else SHORTEST_REFUSAL
    delay = max(usual if found.delay is None else found.delay, SHORTEST_REFUSAL)
    if not quiet:
        log.warning("rate limited for %.1f s: %s", delay, why.message, extra=facts)
    runtime.refused(job.queue, delay)
    return released(job.lease, delay, why="rate limited")


def _invalid(context: Context, error: BaseException, code: str, runtime: Runtime) -> Outcome:
    why = unfit(error, code, attempt=context.job.attempts, worker=runtime.worker)
    return _logged(context, fate(context.job, why), runtime)


def _unknown(job: Job) -> Outcome:
    """A worker of an older release may simply not know the task yet: give it back, later and later."""
    waited = (job.started_at - job.created_at).total_seconds() if job.started_at else 0.0
    delay = min(max(waited, 1.0), LONGEST_UNKNOWN)
    log.warning(
        "task %s is not known here: deploy a worker of queue %s whose app has it, or cancel the job. It was given back "
        "unspent for %.0f s, and will be tried again later and later, every %.0f s in the end, until one does",
        job.task,
        job.queue,
        delay,
        LONGEST_UNKNOWN,
        extra={"jobId": job.id, "queue": job.queue},
    )
    return released(job.lease, delay, why=f"task {job.task!r} is unknown to this worker")


def _log_ignored(handler: Handler, context: Context) -> None:
    """Log which fields a job of another system has in vain."""
    if names := handler.ignored(context.job):
        log.warning(
            "task %r takes no %s: ignored in job %s of queue %s, which another system enqueued (strict=True refuses it)",
            handler.task,
            shown(names, 200),
            context.id,
            context.job.queue,
            extra={"jobId": context.id, "queue": context.job.queue, "task": handler.task},
        )


def _completed(handler: Handler, context: Context, result: Any, runtime: Runtime) -> Outcome:
    try:
        recorded = result if isinstance(result, msgspec.Raw) else record(result)
        lost = dropped(recorded)
        then = _follow_ups(handler, context, recorded, lost)
    except BaseException as error:  # noqa: BLE001 - a result runs code of its own when it is written down
        return _invalid(context, error, "invalid_result", runtime)
    if lost:
        facts = {"jobId": context.id, "queue": context.job.queue, "task": context.job.task}
        log.warning("job %s of task %s is completed, but %s", context.id, context.job.task, lost, extra=facts)
    return completed(context.lease, recorded, then=then)


def _follow_ups(handler: Handler, context: Context, result: Any, lost: str) -> tuple[NewJob, ...]:
    """What the handler added by ``then``, and the job of its task's ``on_success``; raises if that one does not take the result."""
    then = tuple(msgspec.structs.replace(call.job, parent=context.job.id) for call in context.follow_ups)
    if handler.after_success is None:
        return then
    if lost:
        raise PayloadError(
            f"{lost}, and on_success needs it: store the data elsewhere and return its address"
        )
    return (*then, handler.after_success(context.job, result))


def _chance() -> float:
    return random.random()  # noqa: S311 - not a secret


def _logged(context: Context, outcome: Outcome, runtime: Runtime) -> Outcome:
    """Log how an attempt failed, and pass the outcome on."""
    log_failure(context.job, outcome, worker=runtime.worker, facts=context.facts)
    return outcome
