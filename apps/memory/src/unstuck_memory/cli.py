"""The ``unstuck-memory`` command. Verbs are imported when they are called, so that help comes at once."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NoReturn

import click

_VERBS = {
    "init": ("verbs.init", "init", "Create or update the graph and its job store."),
    "mcp": ("mcp.command", "mcp", "Serve the memory to an assistant, over MCP."),
    "search": ("verbs.search", "search", "Find entities by words and by meaning."),
    "show": ("verbs.show", "show", "Show an entity, its relations and its embeddings."),
    "status": ("verbs.status", "status", "Show how far the embeddings are."),
    "check": ("verbs.check", "check", "Test the graph, the queue and the provider."),
    "repair": ("verbs.repair", "repair", "Queue embeddings that are missing."),
    "merge": ("verbs.merge", "merge", "Merge an entity into another one."),
    "purge": ("verbs.purge", "purge", "Delete old archived versions for good."),
    "export": ("verbs.archives", "export", "Write everything to a file."),
    "import": ("verbs.archives", "import_", "Read a file into the memory."),
}


class _Verbs(click.Group):
    """Wrong input is one line and exit code 2; anything else of ours is one line and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, name, _ = _VERBS[cmd_name]
        command = getattr(import_module(f"unstuck_memory.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above: asking each verb would import all of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _VERBS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            sys.exit(super().main(*args, **kwargs | {"standalone_mode": False}) or 0)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except click.Abort:
            sys.exit(1)
        except OSError as error:
            _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
        except Exception as error:  # noqa: BLE001 - those that are not ours are raised again
            _fail_as(error)


@click.group(cls=_Verbs)
def main() -> None:
    """A knowledge graph whose vectors never go missing."""


def _fail_as(error: Exception) -> NoReturn:
    from unstuck import ConfigError, UnstuckError
    from unstuck_memory.errors import InvalidInput, NotFound, SettingsError, UnstuckMemoryError

    if not isinstance(error, UnstuckError | UnstuckMemoryError):
        raise error
    _fail(str(error), 2 if isinstance(error, ConfigError | InvalidInput | NotFound | SettingsError) else 1)


def _fail(message: str, code: int) -> NoReturn:
    from unstuck_memory.verbs.output import line, without_secrets

    click.echo(f"unstuck-memory: {without_secrets(line(message))}", err=True)
    sys.exit(code)
