"""A Redis server of the bench's own: a child on a free port of this host, with its data in a folder that goes."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from redis import Redis
from redis.exceptions import ConnectionError, ResponseError  # noqa: A004 - as the driver calls it

from bench.contestant import OUT
from bench.server import seconds

SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "auto-aof-rewrite-percentage": "0",  # or it would rewrite its file in the middle of somebody's turn
    "maxmemory-policy": "noeviction",
}
LONGEST_START = 30.0


class RedisServer:
    """Runs from ``start`` to ``stop``, which removes all it had. Each contestant has a database of it."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            sys.exit("Redis is not here: install its server, on Debian with `apt-get install redis-server`")
        OUT.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix="redis-", dir=OUT)
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        settings = SETTINGS | {"port": str(self.port), "dir": folder}
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        # A session of its own: at Ctrl-C it is stopped after those that use it.
        self.process = subprocess.Popen(
            [program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._stack.callback(self._end)
        self._wait()

    def stop(self) -> None:
        self._stack.close()

    def url(self, database: int) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def client(self, database: int = 0) -> Redis:
        return Redis.from_url(self.url(database), decode_responses=True)

    @property
    def version(self) -> str:
        with self.client() as client:
            return str(client.info("server")["redis_version"])

    def cpu(self) -> float:
        """Processor seconds so far, those of children that ended included."""
        return seconds(self.process.pid, waited=True)

    def empty(self) -> None:
        """Remove every job of everybody, and write the file anew, so that it does not grow from turn to turn."""
        with self.client() as client:
            client.flushall()
            with contextlib.suppress(ResponseError):  # it does so already
                client.bgrewriteaof()
            while client.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.05)

    def _wait(self) -> None:
        end = time.monotonic() + LONGEST_START
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit("redis-server does not start")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except ConnectionError:
            return False

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
