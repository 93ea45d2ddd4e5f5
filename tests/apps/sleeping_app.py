"""An app that takes for ever to load."""

import time
from pathlib import Path

Path("loading").touch()
time.sleep(600)
