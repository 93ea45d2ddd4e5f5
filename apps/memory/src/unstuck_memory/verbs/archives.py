"""The verbs ``unstuck-memory export`` and ``import``."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import click

from unstuck_memory import lines
from unstuck_memory.answers import Imported
from unstuck_memory.errors import InvalidInput
from unstuck_memory.values import Value
from unstuck_memory.verbs.opened import Opened, opened, run
from unstuck_memory.verbs.output import Progress, counted, json_option, line, print_json, project_option

STANDARD = "-"


class Exported(Value, frozen=True, kw_only=True):
    """What ``export --json`` prints."""

    file: str
    lines: int


@click.command()
@click.argument("file")
@click.option(
    "--form",
    type=click.Choice(["archive", "reference"]),
    default="archive",
    show_default=True,
    help="Everything with all versions; or what is current, for the reference memory server.",
)
@project_option
@json_option
def export(file: str, form: Literal["archive", "reference"], project: str, *, as_json: bool) -> None:
    """Write everything of a project to FILE, or to standard output if that is a hyphen."""

    async def exported() -> int:
        async with opened(project) as memory:
            found = _shown(memory.memory.export(form))
            return await (_print(found) if file == STANDARD else lines.write(Path(file), found))

    if file != STANDARD:
        _must_be_writable(Path(file))
    count = run(exported())
    if file == STANDARD:
        return
    if as_json:
        print_json(Exported(file=file, lines=count))
        return
    click.echo(f"{counted(count, 'line', 'lines')} written to {line(file)}")


def _must_be_writable(path: Path) -> None:
    """The file replaces what is there when it is complete, so that must not be a device."""
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path} is not a file: name a file, or write - for standard output")
    if not path.absolute().parent.is_dir():
        raise InvalidInput(f"there is no folder {path.absolute().parent}: name a file in one that exists")


async def _print(found: AsyncIterator[bytes]) -> int:
    count = 0
    async for row in found:
        await asyncio.to_thread(sys.stdout.buffer.write, row)
        count += 1
    sys.stdout.buffer.flush()
    return count


async def _shown(found: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    progress, count = Progress("exporting"), 0
    try:
        async for row in found:
            yield row
            count += 1
            progress.show(f"{count:,} lines")
    finally:
        progress.end()


@click.command("import")
@click.argument("file")
@project_option
@json_option
def import_(file: str, project: str, *, as_json: bool) -> None:
    """Read FILE, or standard input if that is a hyphen, into a project. What is there already stays.

    FILE is an archive, which is restored as a whole or not at all, or a file of the reference memory server. The exit code is 1 if
    lines of it could not be read.
    """
    if file != STANDARD and not Path(file).is_file():
        wrong = "is not a file" if Path(file).exists() else "does not exist"
        raise InvalidInput(f"{file} {wrong}: name a file, or write - for standard input")
    found = run(_imported(file, project))
    if as_json:
        print_json(found)
    else:
        click.echo(f"{counted(found.records, 'record', 'records')} imported into project {line(project)}")
        for bad in found.bad:
            click.echo(f"line {bad.line}: {line(bad.problem)}")
        if found.bad_lines:
            click.echo(
                f"{counted(found.bad_lines, 'line was', 'lines were')} left out: correct and import again"
            )
        if not found.scheduled:
            click.echo("the queue did not answer: a worker embeds the new entities later")
    if found.bad_lines:
        sys.exit(1)


async def _imported(file: str, project: str) -> Imported:
    async with opened(project, create=True) as memory, _growing(memory):
        if file != STANDARD:
            return await memory.memory.import_file(Path(file))
        with TemporaryDirectory(prefix="unstuck-memory-") as folder:  # it is read more than once
            path = Path(folder) / "standard input"
            with path.open("wb") as copy:
                await asyncio.to_thread(shutil.copyfileobj, sys.stdin.buffer, copy)
            return await memory.memory.import_file(path)


@asynccontextmanager
async def _growing(memory: Opened) -> AsyncIterator[None]:
    """Show how much the project has, while it grows."""
    progress = Progress("importing")

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.5)
            size = await memory.graph.size(memory.memory.project)
            progress.show(f"the project has {size.entities:,} entities and {size.relations:,} relations")

    watching = asyncio.create_task(watch()) if sys.stderr.isatty() else None
    try:
        yield
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        progress.end()
