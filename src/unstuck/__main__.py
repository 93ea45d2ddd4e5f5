"""``python -m unstuck`` is the ``unstuck`` command."""

from unstuck.cli import main

main(prog_name="unstuck")
