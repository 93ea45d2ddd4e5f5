"""The command on Redis: what an operator sees of a queue, and of servers that cannot be used."""

import json
from collections.abc import Iterator

import pytest
from support.command import Command
from support.redis import Redis
from support.servers import free_port

VERBS = [("status",), ("doctor",), ("init",), ("worker", "tasks:app", "--burst")]
PASSWORD = "corr3ct"


@pytest.fixture(scope="module")
def locked() -> Iterator[Redis]:
    with Redis("redis", settings={"requirepass": PASSWORD}) as server:
        yield server


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_wrong_password_is_wrong_input(run: Command, locked: Redis, verb: tuple[str, ...]) -> None:
    done = run(*verb, store=f"redis://:wr0ng@127.0.0.1:{locked.port}/0")

    assert (done.returncode, done.stdout) == (2, "")
    *_, line = done.stderr.splitlines()  # a worker first names the store that is used instead of the app's
    assert line.startswith("unstuck: the server refuses us: invalid username-password pair")
    assert "wr0ng" not in done.stderr


@pytest.mark.parametrize("verb", VERBS[:2], ids=lambda verb: verb[0])
def test_nobody_there_is_reported_in_one_line_with_the_address(run: Command, verb: tuple[str, ...]) -> None:
    """A worker would wait for it."""
    port = free_port()
    done = run(*verb, store=f"redis://:{PASSWORD}@127.0.0.1:{port}/0")

    assert done.returncode == 1
    told = done.stdout if verb == ("doctor",) else done.stderr
    assert f"127.0.0.1:{port}" in told.splitlines()[0]
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.parametrize("verb", [*VERBS[2:], ("enqueue", "send", '{"to": "ann"}')], ids=lambda verb: verb[0])
def test_a_server_that_loses_jobs_is_wrong_input(run: Command, verb: tuple[str, ...]) -> None:
    with Redis("redis", settings={"maxmemory-policy": "allkeys-lru"}) as server:
        done = run(*verb, store=server.url())
        assert done.returncode == 2
        *_, line = (
            done.stderr.splitlines()
        )  # a worker first names the store that is used instead of the app's
        assert "CONFIG SET maxmemory-policy noeviction" in line
        assert run("init", store=f"{server.url()}?careless=yes").returncode == 0


@pytest.mark.timeout(400)  # it is sixteen commands, each of which starts anew
def test_a_server_that_began_to_lose_jobs_can_be_looked_at_and_fixed(run: Command) -> None:
    with Redis("redis") as server:
        store = server.url()
        id_ = run("enqueue", "fail", "--queue", "mail", store=store).stdout.strip()
        server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        told = {
            verb: run(*verb.split(), store=store)
            for verb in (
                "status", f"explain {id_}", f"job {id_}", "jobs", "dead", "top --once", "verify", "pause mail", "resume mail",
                "retry --queue mail --yes", "release --owner nobody", "clean --yes", f"edit {id_} --priority 5", f"cancel {id_}",
                f"retry {id_}",
            )
        }  # fmt: skip

    assert {verb: (done.returncode, done.stderr) for verb, done in told.items()} == dict.fromkeys(
        told, (0, "")
    )
    assert told[f"retry {id_}"].stdout == "retried 1 job\n"


def test_a_queue_is_looked_at_paused_and_worked_off(run: Command, locked: Redis) -> None:
    store = f"redis://:{PASSWORD}@127.0.0.1:{locked.port}/0"

    def says(*args: str) -> str:
        done = run(*args, store=store)
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        return done.stdout

    says("init")  # it writes a file of settings, which the worker reads
    id_ = says("enqueue", "send", '{"to": "ann"}', "--queue", "mail").strip()
    assert "No worker takes queue 'mail'" in says("explain", id_)
    says("pause", "mail", "--why", "for a while")
    assert "is paused: for a while" in says("explain", id_)
    says("worker", "tasks:app", "--burst")
    assert [job["status"] for job in json.loads(says("jobs", "--json"))["jobs"]] == ["pending"]
    says("resume", "mail")
    says("worker", "tasks:app", "--burst")
    [job] = json.loads(says("jobs", "--json"))["jobs"]
    assert (job["status"], job["result"]) == ("completed", "1 to ann")
    says("verify")
