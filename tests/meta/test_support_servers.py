"""A private server's life, with the toy store as the server."""

import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support import toystore
from support.servers import Server, free_port, missing


def command(port: int, data_dir: Path) -> Sequence[str]:
    return [sys.executable, toystore.__file__, str(port), str(data_dir / "kept")]


def ready(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def ask(port: int, line: bytes, timeout: float = 5) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as client:
        client.sendall(line)
        return client.makefile("rb").readline()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(command, ready, tmp_path) as server:
        yield server


def test_a_server_answers_once_it_is_started_and_not_after_it_is_stopped(server: Server) -> None:
    assert ask(server.port, b"one\n") == b"did one\n"
    assert "listening" in server.log.read_text()

    server.stop()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        ask(server.port, b"two\n")


@pytest.mark.parametrize("ending", ["stop", "kill9", "none"])
def test_a_restart_keeps_port_and_data(server: Server, ending: str) -> None:
    port, pid = server.port, server.child.pid
    ask(port, b"one\n")
    if ending != "none":
        getattr(server, ending)()

    server.restart()
    assert (server.port, server.running) == (port, True)
    assert server.child.pid != pid
    ask(port, b"two\n")
    assert (server.data_dir / "kept").read_bytes() == b"one\ntwo\n"


def test_a_paused_server_accepts_but_does_not_answer(server: Server) -> None:
    server.pause()
    with pytest.raises(TimeoutError):
        ask(server.port, b"one\n", timeout=0.1)

    server.resume()
    assert ask(server.port, b"two\n") == b"did two\n"


def test_a_paused_server_can_be_stopped(server: Server) -> None:
    server.pause()
    server.stop()
    assert not server.running


def test_a_port_taken_by_a_stranger_is_left_to_him(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        ports: list[int] = []

        def too_late(port: int, data_dir: Path) -> Sequence[str]:
            if not ports:
                stranger.bind(("127.0.0.1", port))
                stranger.listen()  # so that the stranger seems ready too
            ports.append(port)
            return command(port, data_dir)

        with Server(too_late, ready, tmp_path) as server:
            assert ports == [stranger.getsockname()[1], server.port]
            assert ask(server.port, b"one\n") == b"did one\n"


def test_a_server_that_cannot_start_gives_the_reason(tmp_path: Path) -> None:
    server = Server(lambda port, data_dir: [sys.executable, "-c", "exit('bad settings')"], ready, tmp_path)

    with pytest.raises(AssertionError, match=r"(?s)ended with 1, not ready.*bad settings"):
        server.start()
    assert not server.running


def test_a_server_that_never_gets_ready_is_not_left_behind(tmp_path: Path) -> None:
    server = Server(command, lambda port: False, tmp_path, timeout=0.3)

    with pytest.raises(AssertionError, match=r"to be ready on port"):
        server.start()
    assert not server.running


def test_free_ports_are_free() -> None:
    with socket.create_server(("127.0.0.1", free_port())):
        pass


@pytest.mark.parametrize(("ci", "verdict"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_skips_at_home_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, verdict: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)) as raised:
        missing("Redis", "apt install redis")
    assert raised.type is verdict
    assert str(raised.value) == "Redis is missing; to run this test: apt install redis"
