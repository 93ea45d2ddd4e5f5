"""The ``unstuck`` command. Verbs are imported when they are called, so that help comes at once."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from unstuck.text.platforms import refused

_VERBS = {
    "demo": ("demo.verb", "Watch jobs survive killed and frozen workers."),
    "worker": ("work", "Run the jobs of an app."),
    "reap": ("reap", "Recover jobs whose worker died."),
    "enqueue": ("enqueue", "Enqueue a job."),
    "jobs": ("jobs", "List jobs."),
    "job": ("jobs", "Show one job and what happened to it."),
    "explain": ("jobs", "Explain why a job is not running."),
    "dead": ("jobs", "List dead letters."),
    "retry": ("change", "Put finished jobs back into their queues."),
    "edit": ("change", "Give waiting jobs another priority or time."),
    "cancel": ("change", "Cancel jobs."),
    "release": ("change", "Give back what a worker holds."),
    "clean": ("change", "Delete old finished jobs."),
    "status": ("queues", "Show every queue in numbers."),
    "top": ("top", "Watch queues, workers and jobs as they run."),
    "schedules": ("schedules", "Show schedules; add, change, pause and run them."),
    "pause": ("queues", "Stop leasing from a queue."),
    "resume": ("queues", "Let a queue run again."),
    "init": ("look", "Create or update the store's schema."),
    "doctor": ("look", "Report what is wrong with a store, and what to do."),
    "verify": ("look", "Check the rules that must always hold."),
    "completion": ("look", "Print a script for shell completion."),
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command = getattr(import_module(f"unstuck.cli.{_VERBS[cmd_name][0]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from unstuck.text.phrases import near

        if args and args[0] not in _VERBS and (hint := near(args[0], _VERBS)):
            ctx.fail(f"No such command {args[0]!r} ({hint})")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above: asking each verb would import all of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in _VERBS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click does it, but wrong usage is one line on stderr, as all wrong input is."""
        if why := refused():
            click.echo(f"unstuck: {why}", err=True)
            sys.exit(2)
        try:
            sys.exit(super().main(*args, **kwargs | {"standalone_mode": False}) or 0)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            path = context.command_path if context else "unstuck"
            click.echo(f"unstuck: {_in_one_line(error)}: see {path} --help", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(1)


def _in_one_line(error: click.ClickException) -> str:
    """The message of an error; options that help does not show are not suggested."""
    if isinstance(error, click.NoSuchOption) and error.ctx:
        options = [option for option in error.ctx.command.params if isinstance(option, click.Option)]
        hidden = {name for option in options if option.hidden for name in option.opts}
        shown = [name for name in error.possibilities or () if name not in hidden]
        error = click.NoSuchOption(error.option_name, error.message, shown, error.ctx)
    return " ".join(error.format_message().split()).rstrip(".")


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="unstuck")
def main() -> None:
    """Durable background jobs that never stay stuck.

    The store is given by --store, UNSTUCK_STORE or unstuck.toml, for example sqlite:///jobs.db or
    postgresql://user@host/database.
    Exit codes: 0 done, 1 failed, 2 wrong input, 3 a worker halted.
    """
