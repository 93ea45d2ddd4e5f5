"""Prints what the development group of pyproject.toml asks for, one requirement a line."""

import tomllib
from pathlib import Path

project = tomllib.loads(Path(__file__).parent.parent.joinpath("pyproject.toml").read_text())
for requirement in project["dependency-groups"]["dev"]:
    if not requirement.startswith("unstuck"):
        print(requirement.replace(" ", ""))  # one word for the shell, markers included
