"""The inspector of the Model Context Protocol, on its command line, from npm."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.node import PLACE, fetch, must_be_there
from support.servers import alone

PACKAGE, VERSION = "@modelcontextprotocol/inspector", "2.12.0"
SERVER = (str(Path(sys.executable).parent / "unstuck-memory"), "mcp")


class Inspector:
    """``inspector("tools/list")`` starts a server in this folder, asks it once, and answers what was printed as JSON."""

    def __init__(self, home: Path) -> None:
        must_be_there()
        folder = PLACE / f"inspector-{VERSION}"
        with alone(PLACE):
            fetch(folder, "the inspector", {PACKAGE: VERSION})
        self._argv = [str(folder / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
        self._home = home

    def __call__(self, method: str, *options: str, server: tuple[str, ...] = SERVER) -> dict[str, Any]:
        settings = {"XDG_DATA_HOME": str(self._home), "UNSTUCK_MEMORY_EMBEDDINGS": "mock"}
        given = [part for name, value in settings.items() for part in ("-e", f"{name}={value}")]
        done = subprocess.run(  # noqa: S603 - the program was fetched by its name and version
            [*self._argv, *given, *server, "--method", method, *options],
            env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def call(self, tool: str, *, server: tuple[str, ...] = SERVER, **arguments: str) -> dict[str, Any]:
        """Call a tool with arguments as a person types them."""
        given = [part for name, value in arguments.items() for part in ("--tool-arg", f"{name}={value}")]
        return self("tools/call", "--tool-name", tool, *given, server=server)
