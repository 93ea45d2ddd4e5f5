"""The queue of embeddings: its options and variables, its store, and what its jobs are called."""

import pytest
from support.refusal import refusal
from support_memory.conformance.given import more
from support_memory.queued import Queued
from unstuck_memory.embeddings.queue import embed_jobs, embed_store, embedding

from unstuck import ConfigError, Policy, Rate, Unstuck, Worker

pytestmark = pytest.mark.anyio
TOKENS, INTERVAL = "EMBEDDING_RATE_LIMIT_TOKENS", "EMBEDDING_RATE_LIMIT_INTERVAL"


@pytest.mark.accepts("EMB-151", "EMB-152")
def test_embeddings_are_limited_to_20_a_minute_unless_the_environment_sets_another_rate() -> None:
    assert embedding({}).get("rate") == Rate(20, per=60.0)
    assert embedding({TOKENS: "100"}).get("rate") == Rate(100, per=60.0)
    assert embedding({TOKENS: "100", INTERVAL: "1500"}).get("rate") == Rate(100, per=1.5)


def test_a_provider_of_ones_own_is_limited_only_if_the_environment_asks_for_it() -> None:
    assert embedding({}, hosted=False).get("rate") is None
    assert embedding({TOKENS: "100"}, hosted=False).get("rate") == Rate(100, per=60.0)
    assert embedding({INTERVAL: "1500"}, hosted=False).get("rate") == Rate(20, per=1.5)


@pytest.mark.parametrize(
    ("variable", "text"), [(TOKENS, "0"), (TOKENS, "many"), (INTERVAL, "60s"), (INTERVAL, "99")]
)
def test_a_rate_out_of_range_is_refused_by_name(variable: str, text: str) -> None:
    assert refusal(embedding, {variable: text}).startswith(f"{variable} is ")


@pytest.mark.accepts("EMB-145", "EMB-070")
def test_an_embedding_is_leased_for_five_minutes_and_renewed_every_two() -> None:
    policy = Policy(**embedding({}))  # type: ignore[arg-type]
    assert (policy.lease, policy.heartbeat, policy.max_crashes, policy.lapse_backoff) == (300, 120, 10, ())
    assert (policy.retention, policy.retention_from) == (14.0, "EMBED_JOB_RETENTION_DAYS")


@pytest.mark.accepts("EMB-028", "EMB-029")
async def test_a_worker_needs_to_know_how_long_jobs_are_kept_and_nobody_else_does(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queued.create("Ann")
    for days in ("", "6", "31", "14 days"):
        monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", days)
        with pytest.raises(ConfigError, match="EMBED_JOB_RETENTION_DAYS"):
            Worker(queued.queue.app)
    for days in ("7", "30"):
        monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", days)
        Worker(queued.queue.app)


@pytest.mark.accepts("REC-071")
@pytest.mark.parametrize(
    ("text", "seconds"), [("", 60.0), ("60000", 60.0), ("10000", 10.0), ("300000", 300.0), ("0", 0.0)]
)
async def test_a_worker_recovers_at_its_variables_interval_in_milliseconds(text: str, seconds: float) -> None:
    app = Unstuck("sqlite:///jobs.db")
    app.queue("embedding", **embedding({"EMBED_JOB_RECOVERY_INTERVAL": text}))
    app.task(name="embed", queue="embedding")(lambda: None)
    assert Worker(app).recovery == seconds
    assert Worker(app, recovery=5).recovery == 5.0


@pytest.mark.parametrize("text", ["60s", "-5", "2.5", "nan", "86400001"])
def test_an_interval_that_is_not_a_number_of_milliseconds_is_refused(text: str) -> None:
    assert refusal(embedding, {"EMBED_JOB_RECOVERY_INTERVAL": text}) == (
        f"EMBED_JOB_RECOVERY_INTERVAL is {text if text[-1].isdigit() else repr(text)}: "
        "it must be a whole number from 0 to 86400000"
    )


def test_the_store_of_embedding_jobs_is_named_by_four_variables() -> None:
    environ = {
        "EMBED_JOB_DATABASE_URI": "neo4j+s://graph.example:7777",
        "EMBED_JOB_DATABASE_USERNAME": "ann",
        "EMBED_JOB_DATABASE_PASSWORD": "a/b@c",
    }
    assert embed_store({}) is None
    assert embed_store(environ) == "neo4j+s://ann:a%2Fb%40c@graph.example:7777/embedding-jobs"
    named = embed_store(environ | {"EMBED_JOB_DATABASE_NAME": "neo4j"})
    assert named == "neo4j+s://ann:a%2Fb%40c@graph.example:7777/neo4j"
    with pytest.raises(ConfigError, match="EMBED_JOB_DATABASE_URI is not the address of a Neo4j server"):
        embed_store(environ | {"EMBED_JOB_DATABASE_URI": "graph.example"})


async def test_without_an_address_the_embedding_jobs_cannot_be_had() -> None:
    with pytest.raises(ConfigError, match="EMBED_JOB_DATABASE_URI is not set"):
        async with embed_jobs({}):
            pass


async def test_there_is_one_job_for_a_version_and_the_answer_shows_whether_it_is_new(queued: Queued) -> None:
    [ann] = await queued.create("Ann", observations=("a secret",))
    await queued.memory.add_observations([more("Ann", "another secret")])
    first, second = sorted((await queued.jobs()).values(), key=lambda job: job.payload["subjects"]["version"])

    known = await queued.queue.schedule([ann])
    assert [(answer.id, answer.created) for answer in known] == [(first.id, False)]
    again = await queued.queue.schedule_entity_embedding("default", "Ann")
    assert (again.id, again.created) == (second.id, False)
    [new] = await queued.create("Bob")
    assert new.uid in {job.payload["subjects"]["entity_uid"] for job in (await queued.jobs()).values()}
    assert first.payload == {"subjects": {"entity_uid": ann.uid, "model": "m", "version": 1}}
    assert first.key == f"{ann.uid} 1 m"
    assert "secret" not in str(queued.harness.rows("SELECT * FROM job"))

    await queued.queue.process_jobs(10)
    for again_, created in ((False, False), (True, True), (True, False)):
        answer = await queued.queue.schedule_entity_embedding("default", "Ann", again=again_)
        assert (answer.id, answer.created) == (second.id, created)
