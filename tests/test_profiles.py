"""What the environment says of retries, and the queues of embeddings and media."""

from datetime import datetime
from typing import Any

import pytest
from support.refusal import refusal
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Filter, Jobs, Policy, Rate, Reaper, Retry, Unstuck, current_job
from unstuck.environ import default_retry
from unstuck.health import HEARD_EVERY, WORKER_SILENT
from unstuck.layout import terms
from unstuck.model import Beat, Worker
from unstuck.profiles import embedding, pipeline
from unstuck.store import Share
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("environ", "retry"),
    [
        ({}, Retry(attempts=3, backoff=(1.0, 2.0, 4.0))),
        ({"QUEUE_MAX_ATTEMPTS": "5"}, Retry(attempts=5)),
        ({"QUEUE_MAX_ATTEMPTS": "5", "JOB_MAX_ATTEMPTS": "7"}, Retry(attempts=7)),
        ({"QUEUE_RETRY_BACKOFF_MS_BASE": "500"}, Retry(backoff=(0.5, 1.0, 2.0))),
        (
            {"QUEUE_RETRY_BACKOFF_MS_BASE": "500", "JOB_BACKOFF_MS_BASE": "100"},
            Retry(backoff=(0.1, 0.2, 0.4)),
        ),
        ({"QUEUE_RETRY_BACKOFF_MS_MAX": "9000"}, Retry(backoff=(1.0, 2.0, 4.0, 8.0, 9.0))),
        (
            {"QUEUE_RETRY_BACKOFF_MS_MAX": "9000", "JOB_BACKOFF_MS_MAX": "3000"},
            Retry(backoff=(1.0, 2.0, 3.0)),
        ),
        ({"QUEUE_RETRY_BACKOFF_MS_BASE": "10", "JOB_BACKOFF_MS_MAX": "10"}, Retry(backoff=(0.01,))),
        ({"JOB_MAX_ATTEMPTS": "", "QUEUE_MAX_ATTEMPTS": " 4 "}, Retry(attempts=4)),
    ],
)
def test_job_variables_win_over_queue_variables_over_what_is_built_in(
    environ: dict[str, str], retry: Retry
) -> None:
    assert default_retry(environ) == retry


@pytest.mark.parametrize("text", ["0", "-1", "3x", "2.5", "nan", "1e9"])
@pytest.mark.parametrize(
    "variable",
    [
        "JOB_MAX_ATTEMPTS", "JOB_BACKOFF_MS_BASE", "JOB_BACKOFF_MS_MAX",
        "QUEUE_MAX_ATTEMPTS", "QUEUE_RETRY_BACKOFF_MS_BASE", "QUEUE_RETRY_BACKOFF_MS_MAX",
    ],
)  # fmt: skip
def test_a_retry_variable_out_of_range_is_refused_by_name(variable: str, text: str) -> None:
    told = refusal(default_retry, {"JOB_MAX_ATTEMPTS": "5", variable: text})

    assert told.startswith(f"{variable} is ")
    assert "it must be a whole number from 1 to " in told


def test_a_longest_delay_below_the_first_is_refused_with_both_names() -> None:
    told = refusal(default_retry, {"JOB_BACKOFF_MS_BASE": "500", "QUEUE_RETRY_BACKOFF_MS_MAX": "499"})
    alone = refusal(default_retry, {"JOB_BACKOFF_MS_MAX": "999"})

    assert told == (
        "QUEUE_RETRY_BACKOFF_MS_MAX is 499, but the first delay is 500 ms (JOB_BACKOFF_MS_BASE): "
        "the longest must be at least the first"
    )
    assert "(the default of JOB_BACKOFF_MS_BASE)" in alone


@pytest.mark.accepts("REAP-073", "REAP-074")
async def test_a_job_carries_the_environments_retries_unless_its_task_says_its_own(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("QUEUE_RETRY_BACKOFF_MS_BASE", "100")
    monkeypatch.setenv("QUEUE_RETRY_BACKOFF_MS_MAX", "300")
    tasks = [app.task(name="by_queue")(lambda: None)]
    monkeypatch.setenv("JOB_MAX_ATTEMPTS", "8")
    tasks.append(app.task(name="by_job")(lambda: None))
    monkeypatch.setenv("JOB_BACKOFF_MS_BASE", "200")
    tasks.append(app.task(name="by_base")(lambda: None))
    monkeypatch.setenv("JOB_BACKOFF_MS_MAX", "800")
    tasks.append(app.task(name="by_number", retry=2)(lambda: None))
    tasks.append(app.task(name="by_itself", retry=Retry(attempts=4, backoff=(5.0,)))(lambda: None))
    for task in tasks:
        await task.enqueue()

    jobs = (await (await app.jobs()).find(Filter())).jobs
    assert {job.task: (job.max_attempts, job.backoff) for job in jobs} == {
        "by_queue": (9, (0.1, 0.2, 0.3)),
        "by_job": (8, (0.1, 0.2, 0.3)),
        "by_base": (8, (0.2, 0.3)),
        "by_number": (2, (0.2, 0.4, 0.8)),
        "by_itself": (4, (5.0,)),
    }


@pytest.mark.accepts("EMB-151", "EMB-152")
def test_embeddings_are_limited_to_20_a_minute_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("EMBEDDING_RATE_LIMIT_TOKENS", "EMBEDDING_RATE_LIMIT_INTERVAL")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert embedding().get("rate") == Rate(20, per=60.0)
    monkeypatch.setenv(names[0], "100")
    assert embedding().get("rate") == Rate(100, per=60.0)
    monkeypatch.setenv(names[1], "1500")
    assert embedding().get("rate") == Rate(100, per=1.5)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("EMBEDDING_RATE_LIMIT_TOKENS", "0"), ("EMBEDDING_RATE_LIMIT_TOKENS", "many"),
        ("EMBEDDING_RATE_LIMIT_INTERVAL", "60s"), ("EMBEDDING_RATE_LIMIT_INTERVAL", "99"),
    ],
)  # fmt: skip
def test_a_rate_out_of_range_is_refused_by_name(variable: str, text: str) -> None:
    assert refusal(embedding, {variable: text}).startswith(f"{variable} is ")


async def test_whoever_only_enqueues_embeddings_needs_no_retention(app: Unstuck) -> None:
    app.queue("embedding", **embedding({"EMBED_JOB_RETENTION_DAYS": "14 days"}))
    task = app.task(name="embed", queue="embedding")(lambda: None)
    await task.enqueue()

    policy = app.queues["embedding"]
    assert (policy.retention, policy.retention_from) == (14.0, "EMBED_JOB_RETENTION_DAYS")
    assert (policy.heartbeat, policy.max_crashes, policy.lapse_backoff) == (120.0, 10, ())


@pytest.mark.parametrize("name", ["embed days", "1A", 5, None])
def test_a_retention_comes_from_something_that_can_be_a_variable(name: Any) -> None:
    assert refusal(lambda: Policy(retention_from=name)).startswith("retention_from is ")


async def lease_of(app: Unstuck, queue: str) -> float:
    """For how many seconds a worker leases a job of the queue."""
    seen: list[float] = []

    @app.task(name=f"look at {queue}".replace(" ", "_"), queue=queue)
    async def look() -> None:
        job = await (await app.jobs()).get(current_job().id)
        beat: datetime | None = job.heartbeat_at or job.started_at
        assert job.lease_until is not None
        assert beat is not None
        seen.append((job.lease_until - beat).total_seconds())

    await look.enqueue()
    await burst(app)
    return round(seen[0])


@pytest.mark.accepts("EMB-145")
async def test_an_embedding_is_leased_for_five_minutes_and_again_with_each_beat(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")  # its worker does not start without
    app.queue("embedding", **embedding({}))
    assert await lease_of(app, "embedding") == 300

    policy = app.queues["embedding"]
    await app.task(name="embed", queue="embedding")(lambda: None).enqueue()
    [job] = await harness.store.lease({"embedding": Share(policy.lease, 1)}, 1, "w")
    for _ in range(4):
        await harness.age(policy.heartbeat)
        await harness.store.heartbeat(Worker(id="w"), [Beat(job.lease, policy.lease)])
        assert await Reaper(harness.store).recover() == []
    await harness.age(301)
    assert len(await Reaper(harness.store).recover()) == 1


async def test_a_worker_of_long_leases_is_heard_of_often_enough_to_count_as_alive(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * HEARD_EVERY < WORKER_SILENT < 120
    monkeypatch.setattr("unstuck.worker.HEARD_EVERY", 0.05)
    app.task(name="embed", queue="embedding", lease=300.0, heartbeat=120.0)(lambda: None)
    heard: set[datetime | None] = set()

    async def often() -> bool:
        heard.update(worker.seen_at for worker in await harness.store.workers())
        return len(heard) > 2

    async with at_work(app):
        await until_async(often, 30, "three beats of a worker")


@pytest.mark.accepts("REAP-031", "REAP-032", "REAP-033")
@pytest.mark.parametrize(
    ("environ", "leases"),
    [
        ({}, {"": 300, "clip": 600, "asr": 1200, "burnin": 800, "mux": 300}),
        ({"CLIP_SLA_FACTOR": "2"}, {"": 300, "clip": 300, "asr": 1200, "burnin": 800, "mux": 300}),
        (
            {"ASR_SLA_FACTOR": "20", "BURNIN_SLA_FACTOR": "4.5", "QUEUE_VISIBILITY_SEC": "90"},
            {"": 90, "clip": 600, "asr": 2000, "burnin": 450, "mux": 100},
        ),
        (
            {"JOB_LEASE_SEC": "1000", "QUEUE_VISIBILITY_SEC": "90"},
            {"": 1000, "clip": 1000, "asr": 1200, "burnin": 1000, "mux": 1000},
        ),
    ],
)
async def test_a_stage_is_leased_for_its_factor_times_what_it_is_expected_to_take(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], leases: dict[str, int]
) -> None:
    for variable, text in environ.items():
        monkeypatch.setenv(variable, text)
    found = dict.fromkeys(leases, 0)
    app.queue("media", **pipeline())

    @app.task(queue="media")
    async def work() -> None:
        for stage in found:
            if stage:
                current_job().stage(stage, expected=100.0)
            found[stage] = round(current_job().seconds)

    await work.enqueue()
    await burst(app)

    assert found == leases


def test_a_queue_of_media_is_as_the_environment_says_without_any_variable() -> None:
    policy = Policy(**pipeline({}))  # type: ignore[arg-type]

    assert (policy.lease, policy.lapse_backoff) == (300.0, (30.0, 120.0, 600.0))
    assert (policy.heartbeat, policy.max_crashes, policy.retention) == (12.0, None, 14.0)


@pytest.mark.parametrize(
    ("environ", "delays"),
    [
        ({"JOB_BACKOFF_MS_BASE": "1000", "JOB_BACKOFF_MS_MAX": "60000"}, (1.0, 4.0, 16.0, 60.0)),
        ({"QUEUE_RETRY_BACKOFF_MS_BASE": "1000", "QUEUE_RETRY_BACKOFF_MS_MAX": "4000"}, (1.0, 4.0)),
        ({"QUEUE_RETRY_BACKOFF_MS_BASE": "1000", "JOB_BACKOFF_MS_BASE": "200000"}, (200.0, 600.0)),
        ({"JOB_BACKOFF_MS_MAX": "5000"}, (5.0,)),
        ({"JOB_BACKOFF_MS_BASE": "900000"}, (900.0,)),
    ],
)
def test_what_lost_its_worker_waits_four_times_longer_each_time(
    environ: dict[str, str], delays: tuple[float, ...]
) -> None:
    assert terms(environ).backoff == delays


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"JOB_LEASE_SEC": "29"}, "JOB_LEASE_SEC is 29: it must be a number from 30 to 604800 (seconds)"),
        (
            {"QUEUE_VISIBILITY_SEC": "10m"},
            "QUEUE_VISIBILITY_SEC is '10m': it must be a number from 30 to 604800 (seconds)",
        ),
        (
            {"ASR_SLA_FACTOR": "0"},
            "ASR_SLA_FACTOR is 0: it must be a number from 1 to 1000 (times the expected duration)",
        ),
        (
            {"JOB_BACKOFF_MS_BASE": "500", "QUEUE_RETRY_BACKOFF_MS_MAX": "499"},
            (
                "QUEUE_RETRY_BACKOFF_MS_MAX is 499, but the first delay is 500 ms (JOB_BACKOFF_MS_BASE): "
                "the longest must be at least the first"
            ),
        ),
    ],
)
def test_a_term_out_of_range_is_refused_by_name(environ: dict[str, str], told: str) -> None:
    assert refusal(pipeline, environ) == told


@pytest.mark.parametrize("factors", [{"asr": 0.5}, {"asr": "12"}, 12, {"asr": 1001}])
def test_a_factor_of_a_policy_is_a_number_from_1_to_1000(factors: Any) -> None:
    assert "factor" in refusal(lambda: Policy(factors=factors))


def test_the_shortest_lease_of_a_pipeline_is_one_that_a_policy_takes() -> None:
    assert Policy(**pipeline({"JOB_LEASE_SEC": "30"})).lease == 30  # type: ignore[arg-type]


@pytest.mark.accepts("REAP-050")
async def test_a_stage_that_lost_its_worker_waits_longer_each_time(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    app.queue("asr", **pipeline({}))
    task = app.task(name="listen", queue="asr", retry=4)(lambda: None)
    handle = await task.enqueue()
    waits = []
    for _ in range(3):
        await harness.store.lease({"asr": Share(600, 1)}, 1, "crashed worker")
        await harness.age(700)
        await Reaper(harness.store).recover()
        job = await Jobs(harness.store).get(handle.id)
        waits.append((job.run_at - (await harness.store.clock()).now).total_seconds())
        await harness.age(1000)

    for wait, step in zip(waits, (30, 120, 600), strict=True):
        assert step - 5 < wait <= 1.2 * step
