"""Converts between nodes and values. Times are milliseconds since 1970; payloads, results and progress are JSON text."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Category, Failure, FollowUp, Job, NewJob, Ref, Status
from unstuck.protocol.leases import Beat
from unstuck.protocol.operators import Event
from unstuck.protocol.outcome import Outcome
from unstuck.stores.neo4j.address import Neo4jAddress
from unstuck.stores.shared.events import outcome_events, reaped
from unstuck.stores.shared.values import at, instant, json_text, milliseconds

Row = list[Any]
Params = dict[str, Any]
EMBED = "embed"  # the task of a node without one
# The names of times in nodes, also in those of other programs, and in Job.
_TIMES = {
    "created_at": "created_at",
    "run_at": "run_at",
    "started_at": "started_at",
    "processed_at": "finished_at",
    "lock_until": "lease_until",
    "heartbeat_at": "heartbeat_at",
    "expires_at": "expires_at",
}
_TEXTS = ("payload", "progress", "result")
# Nodes omit this policy because most jobs have it. It is part of the stored format: it stays, even if the default changes.
_USUAL = {"backoff": (1.0, 2.0, 4.0)}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
UNREADABLE_BY = (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError)


class ReadJobs(NamedTuple):
    """Jobs that could be read, and for the others their nodes and the reasons."""

    jobs: list[Job]
    unreadable: list[tuple[Params, str]]


def new_row(job: NewJob, number: int, address: Neo4jAddress) -> Params:
    """What enqueue.cypher reads of a job; ``facts`` become properties unchanged."""
    uid = _embedded(job, address)
    if uid is not None and job.interval:
        raise ConfigError(
            f"a job of queue {job.queue!r} about an entity cannot have debounce or throttle: there is one for each entity, "
            "model and version anyway; leave them out"
        )
    payload = str(job.payload, "utf-8") if type(job.payload) is msgspec.Raw else _encode(job.payload).decode()
    facts: Params = {
        "status": "pending",
        "queue": job.queue,
        "task": job.task,
        "payload": payload,
        "priority": job.priority,
        "attempts": 0,
        "max_attempts": job.max_attempts,
        "fence": 0,
    }
    few = {
        "job_id": job.id if job.queue != address.queue else None,
        "key": job.key,
        "digest": job.digest,
        "max_crashes": job.max_crashes,
        "lane": job.lane,
        "parent": job.parent,
        "trace": job.trace,
        "policy": _policy(job.backoff, job.lapse_backoff, job.timeout, job.webhook, job.on_failure),
    }
    facts |= {name: value for name, value in few.items() if value is not None}
    row: Params = {
        "address": address.node_id(job.queue, job.id),
        "number": number,
        "run_at": None if job.run_at is None else instant(job.run_at),
        "delay": milliseconds(job.delay),
        "facts": facts,
        "expires": None,
        "expires_at": None,
    }
    if isinstance(job.expires, datetime):
        row["expires_at"] = instant(job.expires)
    elif job.expires is not None:
        row["expires"] = milliseconds(job.expires)
    return row if uid is None else row | uid


def _embedded(job: NewJob, address: Neo4jAddress) -> Params | None:
    """The subject of an embedding job, which is unique in the store."""
    if job.queue != address.queue:
        return None
    payload = _decode(job.payload) if type(job.payload) is msgspec.Raw else job.payload
    if isinstance(payload, dict) and len(payload) == 1:  # the one argument of a batch
        [payload] = payload.values()
    if not isinstance(payload, dict):
        return None
    found = {name: payload.get(name) for name in ("entity_uid", "model", "version")}
    if not all(isinstance(value, str | int) and not isinstance(value, bool) for value in found.values()):
        return None
    return {name: str(value) for name, value in found.items()}


@lru_cache(1000)  # few policies, many jobs
def _policy(
    backoff: tuple[float, ...],
    lapse_backoff: tuple[float, ...],
    timeout: float | None,
    webhook: str | None,
    on_failure: FollowUp | None,
) -> str | None:
    policy = {
        "backoff": backoff,
        "lapse_backoff": lapse_backoff,
        "timeout": timeout,
        "webhook": webhook,
        "on_failure": on_failure,
    }
    text = _encode({name: value for name, value in policy.items() if value}).decode()
    return None if text == _encode(_USUAL).decode() else text


@lru_cache(1000)
def _of_policy(text: str) -> Params:
    policy: Params = _decode(text)
    return policy


def births() -> Params:
    """A mark by which a repeated call recognises its own jobs, and where their numbers begin within a microsecond."""
    chance = random.getrandbits(62)
    return {"call": chance, "chance": chance % 512}


def job(node: Params, address: Neo4jAddress) -> Job:
    """The job of a node; properties that nodes of other programs lack get defaults."""
    if not isinstance(node.get("id"), str):
        raise TypeError("its id is missing or not text")
    facts: Params = {"queue": address.queue, "task": EMBED, "created_at": 0.0} | node
    for name, called in _TIMES.items():
        if name in node:
            facts[called] = node[name] / 1000
    for name in _TEXTS:
        if name in node:
            facts[name] = _decode(node[name])
    facts |= _of_policy(node["policy"]) if "policy" in node else _USUAL
    facts["id"] = address.ref(facts["queue"], node["id"]).id
    facts["owner"] = node.get("lock_owner")
    facts.setdefault("run_at", facts["created_at"])
    if "payload" not in node:
        facts["payload"] = {name: node.get(name) for name in ("entity_uid", "model", "version")}
    if "error" in node:
        facts["error"] = _failure(node)
    if not 0 <= facts.get("priority", 0) <= 9:
        facts["priority"] = 0 if facts["priority"] < 0 else 9
    return msgspec.convert(facts, Job, strict=False)


def _failure(node: Params) -> Params:
    if "failure" in node:
        found: Params = _decode(node["failure"])
        return found | {"at": at(node["error_at"]) if "error_at" in node else None}
    category = str(node.get("error_category") or Category.PERMANENT).upper()
    return {"category": category, "code": "error", "message": str(node["error"])}


def read(found: Iterable[Params], address: Neo4jAddress) -> ReadJobs:
    """The jobs of nodes. One that cannot be read, because somebody edited it, does not hide the others."""
    answer = ReadJobs([], [])
    for node in found:
        try:
            answer.jobs.append(job(node, address))
        except UNREADABLE_BY as error:
            answer.unreadable.append((node, str(error)[:200]))
    return answer


def kept(node: Params) -> Params:
    """The content that a node which cannot be read keeps: a payload that is not JSON becomes a JSON string."""
    facts: Params = {"task": str(node.get("task", EMBED)), "payload": node.get("payload")}
    try:
        _decode(node.get("payload", "null"))
    except UNREADABLE_BY:
        facts["payload"] = json_text(str(node["payload"]))
    return facts


def beat(given: Beat, number: int, address: Neo4jAddress) -> Params:
    return {
        "address": address.node_id(given.lease.queue, given.lease.id),
        "number": number,
        "fence": given.lease.fence,
        "lease": milliseconds(given.seconds),
        "progress": json_text(given.progress),
        "stage": given.stage,
    }


def completion(outcome: Outcome, number: int, address: Neo4jAddress) -> Row:
    """What complete.cypher reads of a completed outcome."""
    queue, id_, fence = outcome.lease
    return [address.node_id(queue, id_), fence, number, json_text(outcome.result)]


def ending(outcome: Outcome, number: int, address: Neo4jAddress) -> Params:
    """What settle.cypher reads of an outcome."""
    queue, id_, fence = outcome.lease
    facts: Params = {
        "address": address.node_id(queue, id_),
        "number": number,
        "fence": fence,
        "status": str(outcome.status),
        "word": str(outcome.ending),
        "refund": outcome.refund,
        "crashed": int(outcome.crashed),
        "delay": milliseconds(outcome.delay),
        "result": json_text(outcome.result),
        "counts": [
            name
            for name in (str(outcome.ending), "crashed" if outcome.crashed else None, reaped(outcome))
            if name
        ],
    }
    return facts | ({} if outcome.failure is None else failure(outcome.failure))


def failure(why: Failure) -> Params:
    """The property ``failure`` has everything except the time; the other properties are for people and filters."""
    return {
        "failure": json_text(msgspec.structs.replace(why, at=None)),
        "error": why.message,
        "error_category": str(why.category),
        "error_code": why.code,
    }


def events(outcomes: Sequence[Outcome], all_events: bool) -> list[Params]:
    """The events of outcomes, each with the number of its outcome."""
    return [
        {"number": number, "type": type_, "details": json_text(details)}
        for number, type_, details in outcome_events(outcomes, all_events)
    ]


def node_ids(named: Iterable[Ref], address: Neo4jAddress) -> list[str]:
    return sorted({address.node_id(*ref) for ref in named})


def event(row: Row, address: Neo4jAddress) -> Event:
    seq, when, type_, queue, node_id, details, owner = row
    known = _decode(details) | ({} if owner is None else {"owner": owner})
    data = {"type": type_, "table": address.label, "details": known}
    id_ = None if node_id is None else address.ref(queue, node_id).id
    return Event(cursor=str(seq), at=at(when), type=type_, queue=queue, job=id_, data=data)


def record(facts: Sequence[str], when: int) -> tuple[int, str, datetime]:
    """Version, value and time of a record."""
    version, value = facts
    return int(version), value, at(when)


def numbers(answer: Params, address: Neo4jAddress) -> dict[str, Params]:
    """The fields of Counts, by queue."""
    found: dict[str, Params] = {}
    for queue, kinds in answer["kinds"]:
        of_queue = found.setdefault(address.queue if queue is None else queue, {})
        for kind, number in kinds.items():
            of_queue[kind] = of_queue.get(kind, 0) + number
    for queue, waited in answer["waited"]:
        found.setdefault(queue, {})["waited"] = max(0.0, waited / 1000)
    return found


STATUSES = tuple(str(status) for status in Status)
