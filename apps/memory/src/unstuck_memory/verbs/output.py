"""What verbs share in printing: options, JSON, and lines that fit a terminal and cannot steer it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any
from unicodedata import combining, east_asian_width
from urllib.parse import unquote, urlsplit

import click
import msgspec

from unstuck_memory.settings import JOBS_VARIABLE

WIDTH = 80
DEFAULT_PROJECT = "default"
SECRETS = ("NEO4J_PASSWORD", "EMBED_JOB_DATABASE_PASSWORD", "OPENAI_API_KEY", "UNSTUCK_MEMORY_TOKEN")

project_option = click.option(
    "--project", default=DEFAULT_PROJECT, show_default=True, help="Whose memory it is."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def line(text: str) -> str:
    """Text that strangers wrote, on one line; characters that could steer a terminal are written as escapes."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in " ".join(text.split())
    )


def fit(text: str, width: int = WIDTH) -> str:
    """The same, cut to so many columns."""
    found = line(text)
    if columns(found) <= width:
        return found
    kept, used = [], 1
    for character in found:
        used += columns(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def print_wrapped(text: str, lead: str = "") -> None:
    """All of a text that strangers wrote, its further lines indented as the first one is behind its lead."""
    behind = " " * len(lead)
    for row in wrap(line(text), WIDTH, initial_indent=lead, subsequent_indent=behind, break_on_hyphens=False):
        click.echo(row)


def columns(text: str) -> int:
    return sum(
        0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text
    )


def without_user(url: str) -> str:
    """A store's URL without what may be secret in it."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest if scheme == 'sqlite' else rest.rpartition('@')[2]}"


def without_secrets(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """An error's text without the passwords and keys of the settings, should some server have repeated one."""
    found = {environ.get(name, "") for name in SECRETS}
    try:
        password = urlsplit(environ.get(JOBS_VARIABLE, "")).password or ""
    except ValueError:  # it is not a URL, which the settings report
        password = ""
    for secret in sorted(found | {password, unquote(password)}, key=len, reverse=True):
        if secret:
            text = text.replace(secret, "[hidden]")
    return text


class Progress:
    """A line on standard error that shows how far a long step is, if that is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = False
        self._due = time.monotonic() + 0.5 if sys.stderr.isatty() else float("inf")

    def show(self, how_far: str) -> None:
        if time.monotonic() >= self._due:
            click.echo(f"\r\x1b[K{self._what}: {how_far}", nl=False, err=True)
            self._shown, self._due = True, time.monotonic() + 0.2

    def end(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
