"""Which tests stay together when several processes run them: those of one file, and all that need Neo4j.

So one process starts Neo4j's servers, which take a minute between them, and the others do not.
"""

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Together(LoadFileScheduling):  # type: ignore[misc] # it is not typed
        def _split_scope(self, nodeid: str) -> str:
            return "neo4j" if "neo4j" in nodeid else str(super()._split_scope(nodeid))

    return Together(config, log)
