"""What must hold of a run, whatever went wrong in it, checked on the ledger and on the store's records."""

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from support.ledger import Ledger, Record

from chaos.crowd import owner_pid
from chaos.faults import Harm, Span
from chaos.terms import LEASE, PER, RATE
from unstuck import Filter, Job, Jobs, Status
from unstuck.protocol.store import Store

SECOND = 1_000_000_000
SHOWN = 5  # examples of what is wrong, for each check


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job. ``end`` is None if the handler did not come to its end."""

    job: str
    fence: int
    owner: str
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """A rule, over how many it was checked, and what breaks it."""

    rule: str
    of: int
    broken: list[str]


class Recovery(NamedTuple):
    """How long it took from the death of a worker to the next start of its job, and which faults fell into that time."""

    job: str
    seconds: float
    beside: list[str]


class History:
    """All that is known of a run after everything healed and the queues drained."""

    def __init__(
        self, ledger: Ledger, jobs: Iterable[Job], harms: Iterable[Harm], cancelled: set[str]
    ) -> None:
        records = ledger.read()
        self.jobs: Mapping[str, Job] = {job.id: job for job in jobs}
        self.acknowledged = {
            record.job: str(record.facts["task"]) for record in records if record.kind == "acknowledged"
        }
        self.forked = [record for record in records if record.kind == "forked"]
        self.runs = _runs(records)
        self._of: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            self._of[run.job].append(run)
        self._harms = [*harms, *_poisoned(records)]
        self._cancelled = cancelled

    def checks(self) -> list[Check]:
        return [
            self.nothing_lost(),
            self.nothing_stuck(),
            self.ended_as_expected(),
            self.outcome_of_its_holder(),
            self.fences_grow(),
            self.nothing_doubled(),
            self.rate_held(),
            self.follow_ups_once(),
            self.forked_children(),
        ]

    def nothing_lost(self) -> Check:
        lost = [id_ for id_ in self.acknowledged if id_ not in self.jobs]
        return Check("every acknowledged job is in the store", len(self.acknowledged), lost)

    def nothing_stuck(self) -> Check:
        waiting = [
            f"{job.id} {job.task} {job.status} attempts {job.attempts}"
            for job in self.jobs.values()
            if job.status not in (Status.COMPLETED, Status.FAILED)
        ]
        return Check("every job has ended", len(self.jobs), waiting)

    def ended_as_expected(self) -> Check:
        wrong = []
        for job in self.jobs.values():
            code = job.error.code if job.error and job.status is Status.FAILED else ""
            expected = {"crashed", "timeout"} if job.task == "poison" else {""}
            if job.id in self._cancelled:
                expected |= {"cancelled"}
            if job.status in (Status.COMPLETED, Status.FAILED) and code not in expected:
                wrong.append(f"{job.id} {job.task}: {code or 'completed'} {job.error and job.error.message}")
        return Check("each job has ended as its task says", len(self.jobs), wrong)

    def outcome_of_its_holder(self) -> Check:
        ended = {(run.job, run.fence) for run in self.runs if run.end is not None}
        done = [job for job in self.jobs.values() if job.status is Status.COMPLETED]
        wrong = [f"{job.id} {job.task} fence {job.fence}" for job in done if (job.id, job.fence) not in ended]
        return Check("a completed job's last lease is one whose handler came to its end", len(done), wrong)

    def fences_grow(self) -> Check:
        """One that was frozen on its way from the lease to the handler may start late: its outcome is refused."""
        wrong, last = [], dict[str, int]()
        for run in self.runs:
            if run.fence <= last.get(run.job, 0) and not self._harmed(run, until=run.begin):
                wrong.append(f"{run.job}: {run.fence} after {last[run.job]}")
            last[run.job] = max(run.fence, last.get(run.job, 0))
        return Check("each start of a job has a higher fence", len(self.runs), wrong)

    def nothing_doubled(self) -> Check:
        """A handler that came to its end and whose job ran again: only if its worker was harmed before that.

        While the store is away, outcomes wait in the worker's memory; who kills it then makes their jobs run again.
        """
        wrong = []
        done = [run for run in self.runs if run.end is not None]
        for run in done:
            job = self.jobs.get(run.job)
            if job is None or job.id in self._cancelled:  # to cancel it took the lease
                continue
            if job.fence != run.fence and not self._harmed(run, until=self._next_begin(run)):
                wrong.append(f"{run.job} {job.task} ran to its end under {run.owner}, last fence {job.fence}")
        return Check("no job of a worker that nobody harmed ran twice", len(done), wrong)

    def rate_held(self) -> Check:
        rated = {id_ for id_, job in self.jobs.items() if job.queue == "rated"}
        starts = sorted(run.begin for run in self.runs if run.job in rated)
        wrong = []
        for index, at in enumerate(starts):
            count = bisect.bisect_left(starts, at + round(PER * SECOND)) - index
            if count > RATE:
                wrong.append(f"{count} starts in {PER:g} s")
        return Check(f"at most {RATE} rated starts in any {PER:g} s", len(starts), wrong)

    def follow_ups_once(self) -> Check:
        """One for each completed first stage: keyed ones come from elsewhere."""
        of = Counter(
            job.payload["of"] for job in self.jobs.values() if job.task == "second_stage" and not job.key
        )
        first = [job for job in self.jobs.values() if job.task == "first_stage"]
        wrong = [
            f"{job.id} {job.status}: {of[job.id]} follow-ups"
            for job in first
            if of[job.id] != (job.status is Status.COMPLETED)
        ]
        return Check("a completed first stage has exactly one second", len(first), wrong)

    def forked_children(self) -> Check:
        wrong = [str(record.facts) for record in self.forked if record.facts["status"] != 0]
        return Check("a forked producer can enqueue", len(self.forked), wrong)

    def recoveries(self, spans: Iterable[Span] = ()) -> list[Recovery]:
        """Of each job that a killed worker had begun and not ended, and what else went wrong meanwhile or shortly before."""
        found = []
        for harm in (harm for harm in self._harms if harm.kind == "killed"):
            for run in self.runs:
                open_then = run.begin < harm.since and (run.end is None or run.end > harm.since)
                if not open_then or owner_pid(run.owner) not in harm.pids:
                    continue
                later = [one.begin for one in self._of[run.job] if one.begin > harm.since]
                if later:
                    again, before = min(later), harm.since - round(2 * LEASE * SECOND)
                    beside = [
                        span.name
                        for span in spans
                        if before < span.until
                        and span.since < again
                        and not span.since <= harm.since <= span.until
                    ]
                    found.append(Recovery(run.job, (again - harm.since) / SECOND, beside))
        return found

    def _next_begin(self, run: Run) -> int:
        later = [one.begin for one in self._of[run.job] if one.begin > run.begin]
        return min(later, default=run.end or run.begin)

    def _harmed(self, run: Run, until: int) -> bool:
        """Whether the worker was harmed between the start of the run and ``until``, or shortly before."""
        before = run.begin - round(2 * LEASE * SECOND)
        pid = owner_pid(run.owner)
        return any(pid in harm.pids and harm.since <= until and before < harm.until for harm in self._harms)


async def all_jobs(jobs: Jobs) -> list[Job]:
    found: list[Job] = []
    cursor = None
    while True:
        page = await jobs.find(Filter(), 1000, cursor)
        found += page.jobs
        if (cursor := page.cursor) is None:
            return found


async def counters(store: Store, jobs: Iterable[Job]) -> Check:
    """Each job completed once, by the store's own count."""
    completed = Counter(job.queue for job in jobs if job.status is Status.COMPLETED)
    told = {of.queue: of.totals.get("completed", 0) for of in await store.count()}
    wrong = [
        f"{queue}: {n} jobs, counted {told.get(queue)}"
        for queue, n in completed.items()
        if told.get(queue) != n
    ]
    return Check("counters agree with the records", len(completed), wrong)


def _poisoned(records: Iterable[Record]) -> list[Harm]:
    """Workers that a poison job killed."""
    found = [record for record in records if record.kind == "begin" and record.facts.get("task") == "poison"]
    return [Harm("killed", frozenset({record.pid}), record.at, record.at) for record in found]


def _runs(records: Iterable[Record]) -> list[Run]:
    ends = {(record.job, record.fence): record.at for record in records if record.kind == "end"}
    begins = sorted((record for record in records if record.kind == "begin"), key=lambda record: record.at)
    return [
        Run(
            record.job,
            record.fence,
            str(record.facts["owner"]),
            record.at,
            ends.get((record.job, record.fence)),
        )
        for record in begins
    ]
