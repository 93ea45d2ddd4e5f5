"""The ``unstuck`` command. Verbs are imported when they are called, so that help comes at once."""

from __future__ import annotations

from importlib import import_module

import click

_VERBS = {
    "worker": "unstuck.cli.work:worker",
    "reap": "unstuck.cli.work:reap",
    "enqueue": "unstuck.cli.jobs:enqueue",
    "jobs": "unstuck.cli.jobs:jobs",
    "job": "unstuck.cli.jobs:job",
    "status": "unstuck.cli.jobs:status",
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


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="unstuck")
def main() -> None:
    """Durable background jobs that never stay stuck.

    The store is given by --store or UNSTUCK_STORE, for example sqlite:///jobs.db.
    Exit codes: 0 done, 1 failed, 2 wrong input.
    """
