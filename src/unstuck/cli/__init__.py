"""The ``unstuck`` command. Verbs are imported when they are called, so that help comes at once."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

_VERBS = {
    "worker": "unstuck.cli.work:worker",
    "reap": "unstuck.cli.work:reap",
    "enqueue": "unstuck.cli.jobs:enqueue",
    "jobs": "unstuck.cli.jobs:jobs",
    "job": "unstuck.cli.jobs:job",
    "status": "unstuck.cli.jobs:status",
    "pause": "unstuck.cli.queues:pause",
    "resume": "unstuck.cli.queues:resume",
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, _, name = _VERBS[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click does it, but wrong usage is told in one line, as all wrong input is."""
        try:
            sys.exit(super().main(*args, **kwargs | {"standalone_mode": False}) or 0)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            told = " ".join(error.format_message().split()).rstrip(".")
            click.echo(
                f"unstuck: {told}: see {context.command_path if context else 'unstuck'} --help", err=True
            )
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(1)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="unstuck")
def main() -> None:
    """Durable background jobs that never stay stuck.

    The store is given by --store or UNSTUCK_STORE, for example sqlite:///jobs.db.
    Exit codes: 0 done, 1 failed, 2 wrong input.
    """
