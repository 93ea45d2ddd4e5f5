"""The suite that judges every store. A store's test is a ``harness`` fixture and one import::

import pytest
from unstuck.testing.conformance import *

@pytest.fixture
async def harness(tmp_path):
    async with MyHarness(tmp_path) as harness:
        yield harness
"""

from pkgutil import iter_modules

import pytest

# Before they are imported, so that a failure shows the values that were compared.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from unstuck.testing.conformance.addresses import *
from unstuck.testing.conformance.attempts import *
from unstuck.testing.conformance.bulk import *
from unstuck.testing.conformance.cancelling import *
from unstuck.testing.conformance.crowds import *
from unstuck.testing.conformance.enqueue import *
from unstuck.testing.conformance.events import *
from unstuck.testing.conformance.expiry import *
from unstuck.testing.conformance.expiry_races import *
from unstuck.testing.conformance.finished import *
from unstuck.testing.conformance.forks import *
from unstuck.testing.conformance.halt import *
from unstuck.testing.conformance.heartbeat import *
from unstuck.testing.conformance.lanes import *
from unstuck.testing.conformance.large import *
from unstuck.testing.conformance.lease import *
from unstuck.testing.conformance.limits import *
from unstuck.testing.conformance.listing import *
from unstuck.testing.conformance.looking import *
from unstuck.testing.conformance.machine import *
from unstuck.testing.conformance.on_failure import *
from unstuck.testing.conformance.only_new import *
from unstuck.testing.conformance.operate import *
from unstuck.testing.conformance.priority import *
from unstuck.testing.conformance.races import *
from unstuck.testing.conformance.reaping import *
from unstuck.testing.conformance.reclaim import *
from unstuck.testing.conformance.records import *
from unstuck.testing.conformance.recovery import *
from unstuck.testing.conformance.release import *
from unstuck.testing.conformance.results import *
from unstuck.testing.conformance.schedules import *
from unstuck.testing.conformance.settle import *
from unstuck.testing.conformance.spacing import *
from unstuck.testing.conformance.spacing_races import *
from unstuck.testing.conformance.stored_schedules import *
from unstuck.testing.conformance.turns import *
from unstuck.testing.conformance.twins import *

pytestmark = [pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
