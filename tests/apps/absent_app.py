"""An app with a handler whose module can be imported by the worker, but not by a process of its own."""

import os
import sys
from types import ModuleType

from unstuck import Unstuck

app = Unstuck(os.environ["UNSTUCK_STORE"])


def made_up() -> None:
    pass


# As code does that puts modules together at run time.
made_up.__module__ = "made_up"
sys.modules["made_up"] = ModuleType("made_up")

absent = app.task(queue="long", isolate=True)(made_up)
