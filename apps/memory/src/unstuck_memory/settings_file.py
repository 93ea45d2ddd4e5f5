"""The settings file: variables that hold wherever the environment does not set them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from tempfile import NamedTemporaryFile

from unstuck_memory.errors import SettingsError
from unstuck_memory.settings import data_folder

NAME = "settings.toml"
FIRST = """\
# Settings of the memory, by the names of its variables. The environment overrides them.
EMBED_JOB_RETENTION_DAYS = 14 # how long finished embedding jobs are kept
"""
KNOWN = {
    "EMBED_JOB_DATABASE_NAME", "EMBED_JOB_DATABASE_PASSWORD", "EMBED_JOB_DATABASE_URI", "EMBED_JOB_DATABASE_USERNAME",
    "EMBED_JOB_RECOVERY_INTERVAL", "EMBED_JOB_RETENTION_DAYS", "EMBEDDING_RATE_LIMIT_INTERVAL", "EMBEDDING_RATE_LIMIT_TOKENS",
    "NEO4J_DATABASE", "NEO4J_PASSWORD", "NEO4J_URI", "NEO4J_USERNAME", "OPENAI_API_KEY", "OPENAI_BASE_URL",
    "OPENAI_EMBEDDING_MODEL", "UNSTUCK_MEMORY_ANSWER", "UNSTUCK_MEMORY_EMBEDDINGS", "UNSTUCK_MEMORY_HOSTS", "UNSTUCK_MEMORY_JOBS",
    "UNSTUCK_MEMORY_TOKEN",
}  # fmt: skip


def make(environ: Mapping[str, str] = os.environ) -> Path:
    """Write the file if there is none yet, readable by its owner alone. Safe from many processes at once."""
    folder = data_folder(environ)
    path = folder / NAME
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        with NamedTemporaryFile("w", dir=folder, prefix=f".{NAME}.") as file:  # made with 0600
            file.write(FIRST)
            file.flush()
            try:
                path.hardlink_to(file.name)
            except FileExistsError:  # another process was faster, and somebody may have changed it since
                return path
    return path


def apply(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what the file has and the environment has not."""
    path = data_folder(environ) / NAME
    if not path.exists():
        return
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}; correct it") from None
    for name, value in found.items():
        if name not in KNOWN:
            raise SettingsError(
                f"{path} has {name!r:.60}: it can have {', '.join(sorted(KNOWN))}; remove the line"
            )
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise SettingsError(
                f"{path} has no usable {name}: it must be a text or a number; correct the line"
            )
        environ.setdefault(name, str(value))
