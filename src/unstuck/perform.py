"""perform(): run leased jobs of one task and say how their leases shall end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from unstuck import tracing
from unstuck.classifier import Class, Refusal, classify, failure
from unstuck.context import Context
from unstuck.errors import Snooze
from unstuck.handler import Handler
from unstuck.isolate import Crashed
from unstuck.isolated import Remote
from unstuck.model import Category, Failure, Job, Outcome, completed, released
from unstuck.payload import dropped, record
from unstuck.policy import Policy
from unstuck.retry import crash_fate, fate
from unstuck.runners import Contexts, isolated
from unstuck.telemetry import tell_failure

log = logging.getLogger("unstuck.worker")
Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
QUOTA_REST = 1.0  # seconds in which nothing more is started, until the pause is known to all
LONGEST_UNKNOWN = 300.0  # seconds between two tries of a task that is not known
SHORTEST_REFUSAL = 1.0  # seconds to stay away when somebody asks us to, and says not for how long


@dataclass(frozen=True, slots=True)
class Ground:
    """What a job's handler runs on: who runs it, how, and inside of what."""

    worker: str
    run: Callable[[Handler, dict[str, Any], Contexts], Awaitable[Any]]
    refused: Callable[[str, float], None]  # told for how long a queue's jobs are refused
    token: Callable[[str], Awaitable[None]]  # waits for the right to one more call for a queue
    middlewares: Sequence[Middleware] = ()


async def perform(handler: Handler | None, context: Context, policy: Policy, ground: Ground) -> Outcome:
    """Run one job. Raises CancelledError only if the worker itself cancelled it."""
    if handler is None:
        return _unknown(context.job)
    arguments: dict[str, Any] = {}
    if not isolated(handler, context):
        try:
            arguments = handler.arguments.unpack(context.job.payload)
        except Exception as error:  # noqa: BLE001 - models run code of their own
            return _invalid(context, error, "invalid_payload", ground)
        if handler.batch:
            items = list(arguments.values())
            return (await _together(handler, (context,), items, policy, ground))[context.id]
    try:
        result = await _call(handler, arguments, (context,), ground)
    except asyncio.CancelledError:
        if context.cancelled:
            raise
        return _cancelled_itself(context, ground)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the job's failure, not the worker's
        return _judge(context, error, policy, ground)
    return _completed(context, result, ground)


async def perform_batch(
    handler: Handler, contexts: Contexts, policy: Policy, ground: Ground
) -> list[Outcome]:
    """Run several jobs as one; an outcome for each, in order.

    If they fail as a whole, for good, they are run again one by one: only the culprit fails.
    """
    found: dict[str, Outcome] = {}
    items: list[Any] = []
    fit: list[Context] = []
    for context in contexts:
        try:
            items += handler.arguments.unpack(context.job.payload).values()
            fit.append(context)
        except Exception as error:  # noqa: BLE001 - models run code of their own
            found[context.id] = _invalid(context, error, "invalid_payload", ground)
    found |= await _together(handler, tuple(fit), items, policy, ground) if fit else {}
    return [found[context.id] for context in contexts]


async def _together(
    handler: Handler, contexts: Contexts, items: list[Any], policy: Policy, ground: Ground
) -> dict[str, Outcome]:
    [name] = handler.arguments.names
    try:
        answers = handler.answers(await _call(handler, {name: items}, contexts, ground), len(items))
    except asyncio.CancelledError:
        if all(context.cancelled for context in contexts):  # one of them alone may be lost, the rest goes on
            raise
        return {context.id: _cancelled_itself(context, ground) for context in contexts}
    except BaseException as error:  # noqa: BLE001 - as above
        category = classify(error).category
        if category is Category.CRITICAL and len(contexts) > 1:
            return _halted(contexts, error, policy, ground)
        if len(contexts) == 1 or category is not Category.PERMANENT:
            first = contexts[0]
            return {each.id: _judge(each, error, policy, ground, told=each is not first) for each in contexts}
        why = failure(error)
        log.warning(
            "a batch of %d %s jobs failed, so that each is run once more, alone: %s: %s",
            len(items),
            handler.task,
            why.code,
            why.message[:300],
        )
        found: dict[str, Outcome] = {}
        for context, item in zip(contexts, items, strict=True):
            if context.cancelled:  # lost meanwhile: whatever we say of it will be refused
                found[context.id] = released(context.job.lease, why="lost")
                continue
            await ground.token(context.job.queue)
            found |= await _together(handler, (context,), [item], policy, ground)
        return found
    return {
        context.id: _judge(context, answer, policy, ground)
        if isinstance(answer, BaseException)
        else _completed(context, answer, ground)
        for context, answer in zip(contexts, answers, strict=True)
    }


def _halted(contexts: Contexts, error: BaseException, policy: Policy, ground: Ground) -> dict[str, Outcome]:
    """One job tells of it and fails; the others are not to blame, and wait until somebody has looked."""
    first, *others = contexts
    told = {
        context.id: released(context.job.lease, why="the batch met a CRITICAL error") for context in others
    }
    return told | {first.id: _judge(first, error, policy, ground)}


def _call(handler: Handler, arguments: dict[str, Any], contexts: Contexts, ground: Ground) -> Awaitable[Any]:
    if not ground.middlewares and tracing.off():
        return ground.run(handler, arguments, contexts)
    return _call_inside(handler, arguments, contexts, ground)


async def _call_inside(
    handler: Handler, arguments: dict[str, Any], contexts: Contexts, ground: Ground
) -> Any:
    """Inside of a span and of all middleware."""
    call: Callable[[], Awaitable[Any]] = partial(ground.run, handler, arguments, contexts)
    for middleware in reversed(ground.middlewares):
        call = partial(middleware, contexts[0], call)
    with tracing.span(contexts[0].job):
        return await call()


def _judge(
    context: Context, error: BaseException, policy: Policy, ground: Ground, *, told: bool = False
) -> Outcome:
    """What becomes of a job whose handler raised; a refusal of the whole batch is ``told`` but once."""
    job = context.job
    if isinstance(error, Crashed):
        died = _death(job, error, ground.worker)
        return _tell(context, crash_fate(job, died, seen=True, jitter=_chance()), ground.worker)
    if isinstance(error, Remote):
        found, why, snooze = error.ending.found, error.ending.failure, error.ending.snooze
    else:
        found, why = classify(error), failure(error)
        snooze = error.seconds if isinstance(error, Snooze) else None
    if snooze is not None:
        return released(job.lease, snooze, why="snoozed by its handler")
    if found.refusal is not None:
        return _refused(job, found, why, policy, ground, told=told)
    why = msgspec.structs.replace(why, attempt=job.attempts, worker=ground.worker)
    return _tell(context, fate(job, why, delay=found.delay, jitter=_chance()), ground.worker)


def _refused(job: Job, found: Class, why: Failure, policy: Policy, ground: Ground, *, told: bool) -> Outcome:
    """The other side refuses us, whatever we ask: nothing is spent, and all workers stay away."""
    facts = {"jobId": job.id, "queue": job.queue}
    if found.refusal is Refusal.QUOTA:
        reason = f"quota exhausted: {why.message[:300]}"
        if not told:
            log.error("queue %s is paused: %s", job.queue, reason, extra=facts)
        ground.refused(job.queue, QUOTA_REST)
        return released(job.lease, why=reason, pause=reason)
    usual = policy.rate.per if policy.rate else SHORTEST_REFUSAL
    delay = max(usual if found.delay is None else found.delay, SHORTEST_REFUSAL)
    if not told:
        log.warning("rate limited for %.1f s: %s", delay, why.message, extra=facts)
    ground.refused(job.queue, delay)
    return released(job.lease, delay, why="rate limited")


def _death(job: Job, error: Crashed, worker: str) -> Failure:
    return Failure(
        category=Category.TRANSIENT,
        code="crashed",
        reason=error.cause,
        message=str(error),
        attempt=job.attempts,
        worker=worker,
        details={"pid": error.pid, "cause": error.cause},
    )


def _invalid(context: Context, error: BaseException, code: str, ground: Ground) -> Outcome:
    """Failed for good, whatever the error would mean elsewhere."""
    why = failure(error, attempt=context.job.attempts, worker=ground.worker)
    why = msgspec.structs.replace(why, category=Category.PERMANENT, code=code)
    return _tell(context, fate(context.job, why), ground.worker)


def _cancelled_itself(context: Context, ground: Ground) -> Outcome:
    error = asyncio.CancelledError("the handler cancelled itself")
    return _invalid(context, error, "cancelled_itself", ground)


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


def _completed(context: Context, result: Any, ground: Ground) -> Outcome:
    try:
        said = result if isinstance(result, msgspec.Raw) else record(result)
    except Exception as error:  # noqa: BLE001 - a result runs code of its own when it is written down
        return _invalid(context, error, "invalid_result", ground)
    if told := dropped(said):
        facts = {"jobId": context.id, "queue": context.job.queue, "task": context.job.task}
        log.warning("job %s of task %s is completed, but %s", context.id, context.job.task, told, extra=facts)
    return completed(context.lease, said, then=_follow_ups(context))


def _follow_ups(context: Context) -> tuple[Any, ...]:
    if not context.follow_ups:
        return ()
    return tuple(msgspec.structs.replace(call.job, parent=context.job.id) for call in context.follow_ups)


def _chance() -> float:
    return random.random()  # noqa: S311 - not a secret


def _tell(context: Context, outcome: Outcome, worker: str) -> Outcome:
    """Log how an attempt failed, and pass the outcome on."""
    tell_failure(context.job, outcome, worker=worker, facts=context.facts)
    return outcome
