"""``unstuck top``: a live view of a store in a terminal."""

from __future__ import annotations

import curses
import sys
from contextlib import suppress

import click

from unstuck import Overview, StoreError, SyncJobs
from unstuck.cli.frames import Line, frame
from unstuck.cli.output import json_option, named, plainly, print_json, store_option
from unstuck.config.checks import number

PIPED = (100, 60)  # columns and lines where there is no terminal
ESCAPE = 27


@click.command()
@click.option("--every", type=float, default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="Print one look and end, as it does without a terminal.")
@store_option
@json_option
@plainly
def top(every: float, once: bool, store: str | None, as_json: bool) -> None:
    """Watch queues, workers and jobs as they run. q quits."""
    url = named(store)
    number("every", every, 0.1, 60.0)
    with suppress(KeyboardInterrupt), SyncJobs.open(url) as jobs:
        if as_json:
            print_json(jobs.overview())
        elif once or not sys.stdout.isatty():
            for line in frame(jobs.overview(), None, url, *PIPED):
                click.echo(line.text)
        else:
            curses.wrapper(_watch, jobs, url, every)


def _watch(screen: curses.window, jobs: SyncJobs, url: str, every: float) -> None:
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
    past: Overview | None = None
    while True:
        height, width = screen.getmaxyx()
        try:
            view = jobs.overview()
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
