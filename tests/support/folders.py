"""Where things are, for tests in any folder and the processes that they start."""

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
APPS = TESTS / "apps"
IMPORTABLE = os.pathsep.join([str(TESTS), str(APPS)])  # as PYTHONPATH of a process that runs one of the apps
