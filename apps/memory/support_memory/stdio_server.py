"""A stdio server as a host starts it, spoken to line by line."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

PATIENCE = 60.0
COMMAND = (sys.executable, "-c", "from unstuck_memory.cli import main; main()", "mcp")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a first start: nothing is set but where the data are, and the cheapest model."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    return kept | {"XDG_DATA_HOME": str(folder), "UNSTUCK_MEMORY_EMBEDDINGS": "mock"} | more


class StdioServer:
    """Leaving the context kills it. ``output`` has every line that it wrote, also what is no message."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.errors = folder / f"stderr-{os.urandom(4).hex()}"
        self.output: list[bytes] = []
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._last = 0
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - the command is this project's own
                [*command, *arguments],
                env=environment(folder) if env is None else dict(env),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def request(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; answers its id."""
        self._last += 1
        self.write(
            json.dumps(
                {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params or {}}
            ).encode()
            + b"\n"
        )
        return self._last

    def hello(self) -> dict[str, Any]:
        """The handshake of the older protocols."""
        asked = self.request(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        answer = self.answer(asked)
        self.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return answer["result"]  # type: ignore[no-any-return]

    def answer(self, id: int | None) -> dict[str, Any]:
        """The next message, which must be the answer to this request."""
        line = self._lines.get(timeout=PATIENCE)
        assert line is not None, f"the server ended: {self.errors.read_text()}"
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        assert message.get("id") == id, message
        return message

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The data of a tool's answer, which is no failure."""
        message = self.answer(self.request("tools/call", {"name": tool, "arguments": arguments}))
        result = message["result"]
        assert not result["isError"], result
        return result["structuredContent"]  # type: ignore[no-any-return]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            self._lines.put(line)
        self._lines.put(None)
