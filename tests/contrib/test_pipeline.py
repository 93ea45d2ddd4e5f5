"""The profile of the queues of media files, and the terms that the environment sets."""

from typing import Any

import pytest
from support.embeddings import embedding
from support.refusal import refusal
from support.work import burst

from unstuck import Filter, Jobs, Policy, Reaper, Retry, Terms, Unstuck, Worker, current_job
from unstuck.contrib.pipeline import pipeline, pipeline_retry
from unstuck.protocol.leases import Share
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("environ", "retry"),
    [
        ({}, Retry(3, backoff=(30.0, 120.0, 600.0))),
        ({"QUEUE_MAX_ATTEMPTS": "5"}, Retry(5, backoff=(30.0, 120.0, 600.0))),
        (
            {"QUEUE_MAX_ATTEMPTS": "5", "JOB_MAX_ATTEMPTS": "7"},
            Retry(7, backoff=(30.0, 120.0, 600.0)),
        ),
        ({"QUEUE_RETRY_BACKOFF_MS_BASE": "500"}, Retry(backoff=(0.5, 2, 8, 32, 128, 512, 600))),
        (
            {"QUEUE_RETRY_BACKOFF_MS_BASE": "500", "JOB_BACKOFF_MS_BASE": "150000"},
            Retry(backoff=(150.0, 600.0)),
        ),
        ({"QUEUE_RETRY_BACKOFF_MS_MAX": "90000"}, Retry(backoff=(30.0, 90.0))),
        (
            {"QUEUE_RETRY_BACKOFF_MS_MAX": "90000", "JOB_BACKOFF_MS_MAX": "40000"},
            Retry(backoff=(30.0, 40.0)),
        ),
        ({"QUEUE_RETRY_BACKOFF_MS_BASE": "10", "JOB_BACKOFF_MS_MAX": "10"}, Retry(backoff=(0.01,))),
        (
            {"JOB_MAX_ATTEMPTS": "", "QUEUE_MAX_ATTEMPTS": " 4 "},
            Retry(4, backoff=(30.0, 120.0, 600.0)),
        ),
    ],
)
def test_job_variables_win_over_queue_variables_over_what_is_built_in(
    environ: dict[str, str], retry: Retry
) -> None:
    assert pipeline_retry(environ) == retry


@pytest.mark.parametrize("text", ["0", "-1", "3x", "2.5", "nan", "1e9"])
@pytest.mark.parametrize(
    "variable",
    [
        "JOB_MAX_ATTEMPTS", "JOB_BACKOFF_MS_BASE", "JOB_BACKOFF_MS_MAX",
        "QUEUE_MAX_ATTEMPTS", "QUEUE_RETRY_BACKOFF_MS_BASE", "QUEUE_RETRY_BACKOFF_MS_MAX",
    ],
)  # fmt: skip
def test_a_retry_variable_out_of_range_is_refused_by_name(variable: str, text: str) -> None:
    message = refusal(pipeline_retry, {"JOB_MAX_ATTEMPTS": "5", variable: text})

    assert message.startswith(f"{variable} is ")
    assert "it must be a whole number from 1 to " in message


@pytest.mark.accepts("REAP-073", "REAP-074")
async def test_a_job_of_a_pipeline_carries_the_environments_retries_unless_its_task_has_its_own(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("QUEUE_RETRY_BACKOFF_MS_BASE", "100")
    monkeypatch.setenv("QUEUE_RETRY_BACKOFF_MS_MAX", "500")
    tasks = [app.task(name="by_queue", retry=pipeline_retry())(lambda: None)]
    monkeypatch.setenv("JOB_MAX_ATTEMPTS", "8")
    tasks.append(app.task(name="by_job", retry=pipeline_retry())(lambda: None))
    monkeypatch.setenv("JOB_BACKOFF_MS_BASE", "200")
    tasks.append(app.task(name="by_base", retry=pipeline_retry())(lambda: None))
    monkeypatch.setenv("JOB_BACKOFF_MS_MAX", "1000")
    tasks.append(app.task(name="by_limit", retry=pipeline_retry())(lambda: None))
    tasks.append(app.task(name="by_itself", retry=Retry(attempts=4, backoff=(5.0,)))(lambda: None))
    for task in tasks:
        await task.enqueue()

    jobs = (await (await app.jobs()).find(Filter())).jobs
    assert {job.task: (job.max_attempts, job.backoff) for job in jobs} == {
        "by_queue": (9, (0.1, 0.4, 0.5)),
        "by_job": (8, (0.1, 0.4, 0.5)),
        "by_base": (8, (0.2, 0.5)),
        "by_limit": (8, (0.2, 0.8, 1.0)),
        "by_itself": (4, (5.0,)),
    }


async def test_an_ordinary_task_does_not_notice_the_variables_of_pipelines(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (
        "JOB_MAX_ATTEMPTS", "JOB_BACKOFF_MS_BASE", "JOB_BACKOFF_MS_MAX", "JOB_LEASE_SEC", "QUEUE_VISIBILITY_SEC",
        "QUEUE_MAX_ATTEMPTS", "QUEUE_RETRY_BACKOFF_MS_BASE", "QUEUE_RETRY_BACKOFF_MS_MAX", "CLIP_SLA_FACTOR",
        "REAPER_INTERVAL_SEC", "EMBED_JOB_RECOVERY_INTERVAL",
    ):  # fmt: skip
        monkeypatch.setenv(variable, "7")
    usual = app.task(name="usual")(lambda: None)
    by_number = app.task(name="by_number", retry=2)(lambda: None)
    jobs = [(await task.enqueue()) for task in (usual, by_number)]

    found = [await handle.job() for handle in jobs]
    assert [(job.max_attempts, job.backoff) for job in found] == [(3, (1.0, 2.0, 4.0)), (2, (1.0, 2.0, 4.0))]
    assert app.queues["default"] == Policy()
    assert Worker(app).recovery == 60.0


@pytest.mark.accepts("REAP-070")
@pytest.mark.parametrize(
    ("text", "seconds"), [("", 60.0), ("60", 60.0), ("10", 10.0), ("0.5", 0.5), ("300", 300.0), ("0", 0.0)]
)
async def test_a_worker_of_a_pipeline_recovers_at_its_variables_interval_in_seconds(
    app: Unstuck, text: str, seconds: float
) -> None:
    app.queue("asr", **pipeline({"REAPER_INTERVAL_SEC": text}))
    app.task(name="asr", queue="asr")(lambda: None)

    assert Worker(app).recovery == seconds
    assert Worker(app, recovery=5).recovery == 5.0


@pytest.mark.parametrize("text", ["60s", "-5", "nan", "1e3", "86401"])
def test_an_interval_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    message = refusal(pipeline, {"REAPER_INTERVAL_SEC": text})

    assert message.startswith("REAPER_INTERVAL_SEC is ")
    assert message.endswith(": it must be a number from 0 to 86400 (seconds)")


async def test_the_queues_of_one_worker_must_agree_in_their_interval(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    app.queue("embedding", **embedding(recovery=0.06))
    app.queue("asr", **pipeline({"REAPER_INTERVAL_SEC": "60"}))
    app.queue("clip", **pipeline({"REAPER_INTERVAL_SEC": "60"}))
    for queue in ("embedding", "asr", "clip"):
        app.task(name=queue, queue=queue)(lambda: None)

    assert refusal(Worker, app) == (
        "queue 'embedding' asks for a recovery every 0.06 s and queue 'asr' for one every 60 s: "
        "make them agree, or give the worker an interval (--recovery, UNSTUCK_RECOVERY)"
    )
    assert Worker(app, queues=["asr", "clip"]).recovery == 60.0
    assert Worker(app, recovery=30).recovery == 30.0


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


def test_a_queue_of_media_has_its_defaults_without_any_variable() -> None:
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
    assert Terms.from_environ(environ).backoff == delays


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
