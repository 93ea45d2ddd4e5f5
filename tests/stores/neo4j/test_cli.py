"""The command on a Neo4j store: init in both of its forms, doctor, the verbs of operators, and cleanup with and without APOC."""

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import Answer, said, unstuck
from support.neo4j import PASSWORD, Neo4j
from support.waiting import until_async
from support.work import at_work

from unstuck import Filter, Jobs, StoreError, Unstuck, open_store
from unstuck.protocol.outcome import completed, failed
from unstuck.stores.neo4j import operate
from unstuck.stores.neo4j.client import Neo4jClient
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import enqueued, leased, one_leased, states, trouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness


@pytest.fixture(scope="module")
def bare_server() -> Iterator[Neo4j]:
    """A server that has no APOC."""
    with Neo4j("neo4j", apoc=False) as server:
        yield server


def no_secret(*answers: Answer) -> None:
    for answer in answers:
        assert PASSWORD not in answer.stdout + answer.stderr


def test_init_makes_the_schema_by_either_form_and_shows_no_password(
    neo4j_server: Neo4j, tmp_path: Path
) -> None:
    by_url = unstuck(tmp_path, "init", "--store", f"{neo4j_server.url()}?label=ByUrl", store=None)
    form = ["init", "--uri", neo4j_server.uri, "--username", "neo4j", "--password", PASSWORD]
    by_form = unstuck(tmp_path, *form, "--write-config", store=None)

    no_secret(by_url, by_form)
    assert (by_url.returncode, by_form.returncode) == (0, 0), by_url.stderr + by_form.stderr
    assert "embedding-jobs" in by_form.stdout
    assert PASSWORD not in (tmp_path / "unstuck.toml").read_text()
    made = neo4j_server.execute(
        "SHOW CONSTRAINTS YIELD labelsOrTypes RETURN collect(DISTINCT labelsOrTypes[0])"
    )[0][0]
    assert {"ByUrl", "EmbedJob"} <= set(made)


@pytest.mark.slow
def test_init_reports_it_if_the_database_has_another_name(graph_server: Neo4j, tmp_path: Path) -> None:
    answer = unstuck(tmp_path, "init", "--store", f"{graph_server.url()}?label=Named", store=None)

    assert answer.returncode == 0, answer.stderr
    assert "jobs are in the database neo4j, not in one called embedding-jobs" in answer.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--username", "neo4j"], "belong to --uri"),
        (["--uri", "http://127.0.0.1:1"], "--uri is not the address of a Neo4j server"),
        (["--uri", "bolt://a:b@127.0.0.1:1"], "give the user name and the password separately"),
        (["--uri", "bolt://127.0.0.1:1", "--database", "x"], "names no database"),
        (["--uri", "bolt://127.0.0.1:1", "--username", "ann"], "a user name and without its password"),
    ],
)
def test_what_init_cannot_use_is_reported_in_one_line(options: list[str], told: str, tmp_path: Path) -> None:
    answer = unstuck(tmp_path, "init", *options, store=None)

    assert answer.returncode == 2
    assert told in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_doctor_reports_a_healthy_store_and_fails_where_nobody_answers(
    neo4j_server: Neo4j, tmp_path: Path
) -> None:
    url = f"{neo4j_server.url()}?label=ByUrl"
    unstuck(tmp_path, "init", store=url)

    healthy = unstuck(tmp_path, "doctor", store=url)
    unmade = unstuck(tmp_path, "doctor", store=f"{neo4j_server.url()}?label=NeverMade")
    wrong = unstuck(tmp_path, "doctor", store=url.replace(PASSWORD, f"not{PASSWORD}"))
    nobody = unstuck(tmp_path, "doctor", store=f"bolt://neo4j:{PASSWORD}@127.0.0.1:1/embedding-jobs")

    no_secret(healthy, unmade, wrong, nobody)
    assert healthy.returncode == 0, healthy.stdout
    assert "Neo4j 5.26" in healthy.stdout
    assert "APOC is installed" in healthy.stdout
    assert (unmade.returncode, nobody.returncode) == (1, 1)
    assert "unstuck init" in unmade.stdout
    assert wrong.returncode == 2
    assert "refuses us" in wrong.stderr


def test_doctor_names_indexes_that_are_missing_and_init_makes_them_again(
    neo4j_server: Neo4j, tmp_path: Path
) -> None:
    url = f"{neo4j_server.url()}?label=Dropped"
    unstuck(tmp_path, "init", store=url)
    for drop in ("INDEX Dropped_line", "CONSTRAINT Dropped_entity", "INDEX Dropped_status"):
        neo4j_server.execute(f"DROP {drop}")
    # One of another name is as good; one that lets two nodes be the same is not.
    neo4j_server.execute("CREATE INDEX theirs FOR (j:Dropped) ON (j.status)")
    neo4j_server.execute("CREATE INDEX plain FOR (j:Dropped) ON (j.entity_uid, j.model, j.version)")

    broken = unstuck(tmp_path, "doctor", store=url)
    assert broken.returncode == 1
    assert "are missing: Dropped_entity, Dropped_line: " in broken.stdout
    assert "run: unstuck init" in broken.stdout
    refused = unstuck(tmp_path, "init", store=url)
    assert refused.returncode == 0, refused.stderr
    assert "Dropped_entity is missing and cannot be created: " in refused.stderr
    assert "Dropped_line was missing and has been made again" in refused.stderr
    neo4j_server.execute("DROP INDEX plain")
    assert (
        unstuck(tmp_path, "init", store=url).stderr == "Dropped_entity was missing and has been made again\n"
    )
    assert unstuck(tmp_path, "init", store=url).stderr == ""
    healthy = unstuck(tmp_path, "doctor", store=url)
    assert healthy.returncode == 0, healthy.stdout


async def test_a_job_whose_status_is_none_is_reported_in_one_line_by_every_verb(
    harness: Neo4jHarness, tmp_path: Path
) -> None:
    [bad, _] = await enqueued(harness.store, 2)
    await harness.rows("MATCH (j:Harness {job_id: $id}) SET j.status = 'PENDING'", id=bad.id)

    for verb in ("explain", "job", "retry", "cancel"):
        answer = unstuck(tmp_path, verb, bad.id, store=harness.url)
        assert (answer.returncode, answer.stdout) == (1, ""), verb
        [line] = answer.stderr.splitlines()
        assert f"job '{bad.id}' of queue '{bad.queue}' cannot be read (Invalid enum value 'PENDING'" in line
    healthy = unstuck(tmp_path, "doctor", store=harness.url)
    assert healthy.returncode == 1
    assert (
        f"1 job with the unknown status 'PENDING': no worker will ever take such a job: q/{bad.id}"
        in healthy.stdout
    )
    assert "WHERE j.status = 'PENDING' SET j.status = 'pending', or the right one: " in healthy.stdout

    await harness.rows("MATCH (j:Harness) WHERE j.status = 'PENDING' SET j.status = 'pending'")
    assert "unknown status" not in unstuck(tmp_path, "doctor", store=harness.url).stdout
    assert len(await leased(harness.store, 2)) == 2


def test_a_job_about_the_same_entity_is_known_after_init(neo4j_server: Neo4j, tmp_path: Path) -> None:
    store = f"{neo4j_server.url()}?label=Found"
    made = unstuck(tmp_path, "init", store=store)
    asked = [
        "enqueue",
        "embed",
        '{"entity_uid": "Ann", "model": "m", "version": "1"}',
        "--queue",
        "embedding",
    ]
    first, second = (unstuck(tmp_path, *asked, store=store) for _ in range(2))
    recovered = unstuck(tmp_path, "reap", "--once", store=store)

    no_secret(made, first, second, recovered)
    assert (made.returncode, first.returncode, recovered.returncode) == (0, 0, 0), recovered.stderr
    assert second.stdout == f"{first.stdout.strip()} (existed already)\n"


@pytest.mark.parametrize("scheme", ["bolt", "neo4j"])
def test_a_server_that_is_not_there_is_reported_in_one_line_with_its_address(
    scheme: str, tmp_path: Path
) -> None:
    answer = unstuck(tmp_path, "status", store=f"{scheme}://neo4j:{PASSWORD}@127.0.0.1:1/embedding-jobs")

    no_secret(answer)
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert "the server cannot be used now" in answer.stderr


async def test_the_verbs_of_operators_do_what_they_print(harness: Neo4jHarness, tmp_path: Path) -> None:
    url = harness.url
    await enqueued(harness.store, 4, max_attempts=1)
    held, lost, dead, done = await leased(harness.store, 4, owner="w1", seconds=1.0)
    await harness.store.settle([failed(dead.lease, trouble()), completed(done.lease)])

    assert said(unstuck(tmp_path, "release", held.id, "--owner", "w1", "--json", store=url)) == {
        "released": 1
    }
    await harness.age(15 * 86400)
    recovered = unstuck(tmp_path, "reap", "--once", store=url)
    assert recovered.returncode == 0, recovered.stderr
    assert said(unstuck(tmp_path, "job", lost.id, "--json", store=url))["job"]["status"] == "failed"
    assert said(unstuck(tmp_path, "retry", "--all", "--yes", "--json", store=url)) == {"retried": 2}
    [of] = said(unstuck(tmp_path, "status", "--json", store=url))
    assert (of["pending"], of["completed"], of["failed"]) == (3, 1, 0)
    assert said(unstuck(tmp_path, "clean", "--yes", "--json", store=url)) == {"deleted": 1}
    assert said(unstuck(tmp_path, "verify", "--json", store=url)) == {"broken": []}


async def finished(harness: Neo4jHarness, count: int) -> None:
    """Jobs that ended 15 days ago, half of them with an event, and one that has not ended."""
    await enqueued(harness.store, count)
    jobs = await leased(harness.store, count)
    half = count // 2
    await harness.store.settle([completed(job.lease) for job in jobs[:half]])
    await harness.store.settle([failed(job.lease, trouble()) for job in jobs[half:]])
    await harness.age(15 * 86400)
    await one_leased(harness.store)


@pytest.mark.accepts("EMB-023", "EMB-024", "EMB-025")
async def test_the_cleanup_of_a_worker_runs_through_apoc_and_the_log_reports_it(
    harness: Neo4jHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finished(harness, 450)
    asked: list[str] = []
    finish = operate._finished

    async def watched(client: Neo4jClient, name: str, which: Filter, limit: int) -> Any:
        asked.append(client.statements[name])
        return await finish(client, name, which, limit)

    monkeypatch.setattr(operate, "_finished", watched)

    async def cleaned() -> bool:
        return await states(harness.store) == {"processing": 1}

    with caplog.at_level(logging.INFO, "unstuck.neo4j"):
        async with Unstuck(harness.url) as app:
            app.task(name="task", queue="q", retention=14)(lambda: None)
            async with at_work(app):  # nobody asks it to clean up
                await until_async(cleaned, 30, "the first cleanup")

    assert "cleanup of old jobs runs through APOC" in caplog.text
    assert asked
    assert all("CALL apoc.periodic.iterate" in text for text in asked)
    assert await states(harness.store) == {"processing": 1}
    assert await harness.rows("MATCH (e:HarnessEvent) RETURN count(e)") == [(0,)]


@pytest.mark.long
async def test_cleanup_without_apoc_runs_in_bounded_batches_and_the_log_reports_it(
    bare_server: Neo4j, caplog: pytest.LogCaptureFixture
) -> None:
    async with Neo4jHarness(bare_server.url()) as harness:
        await finished(harness, 450)

        with caplog.at_level(logging.INFO, "unstuck.neo4j"):
            assert await harness.store.delete(Filter(older_than=14 * 86400.0), 100) == 100
            assert await Jobs(harness.store).cleanup_jobs(days=14) == 350

        assert "in bounded batches, because APOC is not installed" in caplog.text
        assert await states(harness.store) == {"processing": 1}
        assert await harness.rows("MATCH (e:HarnessEvent) RETURN count(e)") == [(0,)]


async def test_what_apoc_could_not_do_is_not_masked(
    harness: Neo4jHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> list[object]:
        return [3, 2, "disk full"]

    monkeypatch.setattr(operate, "_finished", broken)

    with pytest.raises(StoreError, match="cleanup by APOC failed for 2 jobs: disk full"):
        await Jobs(harness.store).cleanup_jobs(days=14)


async def test_events_all_also_reports_routine_changes(neo4j_server: Neo4j) -> None:
    async with Neo4jHarness(neo4j_server.url(), "&events=all") as harness:
        job = await one_leased(harness.store)
        await harness.store.settle([completed(job.lease)])
        async with open_store(harness.url) as store:
            told = await store.events(job=job.ref)

    assert [event.type for event in told] == ["enqueued", "leased", "completed"]
