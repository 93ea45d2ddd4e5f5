"""Works a store hard while everything around it breaks, then checks the history: ``python chaos/run.py --help``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the files beside this one are chaos.…
    sys.path.append(f"{sys.path[0]}/tests")  # whose servers, proxy and ledger serve here, too
    from chaos.main import main

    main()
