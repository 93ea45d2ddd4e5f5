"""Measures Unstuck beside its peers, in one interleaved run a store: ``python bench/run.py --help``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the files beside this one are bench.…
    sys.path.append(f"{sys.path[0]}/tests")  # whose servers serve here, too
    from bench.main import main

    main()
