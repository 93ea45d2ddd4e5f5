"""``unstuck top``: a live view of a store in a terminal."""

from __future__ import annotations

import asyncio
import curses
import sys

import click

from unstuck.cli.frames import Line, View, frame, look
from unstuck.cli.output import json_option, named, plainly, print_json, store_option
from unstuck.errors import StoreError
from unstuck.jobs import Jobs
from unstuck.policy import number
from unstuck.stores import existing_store

PIPED = (100, 60)  # columns and lines where there is no terminal
ESCAPE = 27


@click.command()
@click.option("--every", type=float, default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="Print one look and end; so it does where there is no terminal.")
@store_option
@json_option
@plainly
def top(every: float, once: bool, store: str | None, as_json: bool) -> None:
    """Watch queues, workers and jobs as they run. q quits."""
    url = named(store)
    number("every", every, 0.1, 60.0)
    with asyncio.Runner() as runner:
        opened = runner.run(existing_store(url).__aenter__())
        try:
            jobs = Jobs(opened)
            if as_json:
                print_json(runner.run(look(jobs)))
            elif once or not sys.stdout.isatty():
                for line in frame(runner.run(look(jobs)), None, url, *PIPED):
                    click.echo(line.text)
            else:
                curses.wrapper(_watch, runner, jobs, url, every)
        except KeyboardInterrupt:
            return
        finally:
            runner.run(opened.__aexit__(None, None, None))


def _watch(screen: curses.window, runner: asyncio.Runner, jobs: Jobs, url: str, every: float) -> None:
    curses.curs_set(0)
    curses.use_default_colors()
    for number_, colour in ((1, curses.COLOR_GREEN), (2, curses.COLOR_RED)):
        curses.init_pair(number_, colour, -1)
    styles = {
        "plain": curses.A_NORMAL,
        "title": curses.A_BOLD,
        "good": curses.A_BOLD | curses.color_pair(1),
        "bad": curses.A_BOLD | curses.color_pair(2),
    }
    screen.timeout(round(every * 1000))
    past: View | None = None
    while True:
        height, width = screen.getmaxyx()
        try:
            view = runner.run(look(jobs))
            lines = frame(view, past, url, width - 1, height - 1)
            past = view
        except StoreError as error:
            lines = [Line(f"the store does not answer: {error}"[: width - 1], "bad")]
        screen.erase()  # curses sends only what changed, so nothing flickers
        for at, line in enumerate(lines):
            screen.addstr(at, 0, line.text, styles[line.kind])
        screen.addstr(height - 1, 0, "q quits"[: width - 1], curses.A_DIM)
        screen.refresh()
        if screen.getch() in (ord("q"), ord("Q"), ESCAPE):
            return
