"""Private Neo4j Community servers, made of the jars that ``tools/neo4j/pom.xml`` names.

``python -m support.neo4j`` fetches these, once, into a cache that all checkouts share; ``python -m support.neo4j serve``
runs such a server, with a database for jobs, until it is stopped.
"""

import contextlib
import functools
import logging
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import neo4j
from neo4j.exceptions import DriverError, Neo4jError

from support.folders import ROOT
from support.servers import Server, alone, missing

POM = ROOT / "tools" / "neo4j" / "pom.xml"
CACHE = Path.home() / ".cache" / "unstuck"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
PASSWORD = secrets.token_hex(8)
GRAPH, QUEUE = "neo4j", "embedding-jobs"
INSTALL = "apt-get install maven openjdk-17-jre-headless"
OPENED = ("java.nio", "java.io", "sun.nio.ch", "java.util.concurrent", "java.lang")
SETTINGS = {
    "server.http.enabled": "false",
    "server.https.enabled": "false",
    "dbms.usage_report.enabled": "false",
    "server.memory.pagecache.size": "128m",
    "db.tx_log.preallocate": "false",
    "db.tx_log.rotation.retention_policy": "200M size",
}
log = logging.getLogger("neo4j.pool")


class Neo4j(Server):
    """A new, empty server in a folder of its own, which is removed on leaving the context.

    Its one database has the name given; with ``password`` nobody may ask without it. ``apoc`` means that it has APOC.
    """

    def __init__(
        self,
        database: str,
        *,
        password: bool = False,
        apoc: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.database = database
        self.name = f"Neo4j {version()} Community"
        self.id = ""
        self.folder = Path(tempfile.mkdtemp(prefix="unstuck-"))
        self._password = password
        self._jars = jars()
        own = {
            "initial.dbms.default_database": database,
            "dbms.security.auth_enabled": str(password).lower(),
            "server.directories.plugins": str(self._jars / "plugins" if apoc else self.folder / "plugins"),
        }
        self._settings = SETTINGS | own | dict(settings or {})
        self._apoc = apoc
        super().__init__(self._argv, self._answers, self.folder, timeout=180)

    def __exit__(self, *_: object) -> None:
        self.kill9()
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Start it, and make sure that it is the one that had this data before."""
        super().start()
        if self._password and not self.id:
            change = "ALTER CURRENT USER SET PASSWORD FROM 'neo4j' TO $password"
            self.execute(change, "system", auth=("neo4j", "neo4j"), password=PASSWORD)
        [(found,)] = self.execute("CALL db.info() YIELD id RETURN id")
        assert found == self.id or not self.id, "another server answers on this port"
        self.id = found

    def url(self, scheme: str = "bolt") -> str:
        user = f"neo4j:{PASSWORD}@" if self._password else ""
        return f"{scheme}://{user}127.0.0.1:{self.port}/{self.database}"

    @property
    def uri(self) -> str:
        """Its address alone."""
        return f"bolt://127.0.0.1:{self.port}"

    def execute(
        self, text: str, database: str | None = None, *, auth: tuple[str, str] | None = None, **params: Any
    ) -> list[tuple[Any, ...]]:
        """The rows of a query, from a connection of its own that commits at once."""
        auth = auth or (("neo4j", PASSWORD) if self._password else None)
        with neo4j.GraphDatabase.driver(self.uri, auth=auth, connection_timeout=10) as driver:
            return _run(driver, text, database or self.database, params)

    def _argv(self, port: int, data_dir: Path) -> Sequence[str]:
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        (self.folder / "plugins").mkdir(exist_ok=True)
        settings = self._settings | {
            "server.bolt.listen_address": f"127.0.0.1:{port}",
            "server.bolt.advertised_address": f"127.0.0.1:{port}",
            "server.directories.data": str(data_dir),
        }
        (conf / "neo4j.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        opened = [word for name in OPENED for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
        path = ":".join([*([f"{self._jars}/plugins/*"] if self._apoc else []), f"{self._jars}/lib/*"])
        java = [_java(), "-Xms256m", "-Xmx768m", "-XX:+UseParallelGC", *opened, "-cp", path]
        home = [f"--home-dir={self.folder}", f"--config-dir={conf}", "--console-mode"]
        return [*java, "org.neo4j.server.CommunityEntryPoint", *home]

    def _answers(self, port: int) -> bool:
        level, log.disabled = log.disabled, True  # that nobody answers yet is no news
        try:
            auth = ("neo4j", PASSWORD if self.id else "neo4j") if self._password else None
            with neo4j.GraphDatabase.driver(
                f"bolt://127.0.0.1:{port}", auth=auth, connection_timeout=2
            ) as driver:
                # One that was never told another password answers only about that.
                database = self.database if self.id or not self._password else "system"
                asked = "RETURN 1" if database != "system" else "SHOW DEFAULT DATABASE"
                _run(driver, asked, database, {})
                return True
        except Neo4jError as error:
            return "CredentialsExpired" in (error.code or "")
        except (DriverError, OSError):
            return False
        finally:
            log.disabled = level


def _run(driver: neo4j.Driver, text: str, database: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    """At once: what the driver has for this would try for half a minute."""
    with driver.session(database=database) as session:
        return [tuple(row.values()) for row in session.run(neo4j.Query(text), params)]


def version() -> str:
    """The version that is fetched, such as 5.26.18."""
    found = re.search(r"<neo4j.version>(.+)</neo4j.version>", POM.read_text())
    assert found, f"{POM}: names no version"
    return found[1]


def here() -> bool:
    """Whether there is what a Neo4j is made of and runs on."""
    return shutil.which("java") is not None and (_folder().exists() or shutil.which("mvn") is not None)


def _folder() -> Path:
    return CACHE / f"neo4j-{version()}"


@functools.cache
def jars() -> Path:
    """The folder with ``lib`` and ``plugins``; skips the test if it cannot be had."""
    folder = _folder()
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        missing("Neo4j", INSTALL)
    with alone(CACHE):
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        fetched = Path(made, "neo4j")
        lib, plugins = fetched / "lib", fetched / "plugins"
        plugins.mkdir(parents=True)
        ask = ["mvn", "-B", "-q", "-f", str(POM), COPY, "-DincludeScope=runtime", f"-DoutputDirectory={lib}"]
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=1800)
        if done.returncode:
            missing(f"Neo4j ({done.stdout[-500:]})", "let Maven reach its repository")
        for jar in lib.glob("apoc-*.jar"):
            jar.rename(plugins / jar.name)
        fetched.rename(folder)


@functools.cache
def _java() -> str:
    return shutil.which("java") or missing("Neo4j", INSTALL)


def _serve() -> None:
    with Neo4j(QUEUE, password=True) as server:
        sys.stdout.write(f"{server.url()}\n")
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        _serve()
    else:
        sys.stdout.write(f"{jars()}\n")
