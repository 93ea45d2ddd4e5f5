"""The suite that judges every graph. A graph's test is a ``place`` fixture and ``from support_memory.conformance import *``.

It is written from the protocol alone (:mod:`unstuck_memory.graph`).
"""
# ruff: noqa: E402, F403 - what is imported before it is registered could not be rewritten

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from support_memory.conformance.archive import *
from support_memory.conformance.comparing import *
from support_memory.conformance.embeddings import *
from support_memory.conformance.entities import *
from support_memory.conformance.history import *
from support_memory.conformance.keyword import *
from support_memory.conformance.merging import *
from support_memory.conformance.missing import *
from support_memory.conformance.nearest import *
from support_memory.conformance.projects import *
from support_memory.conformance.purging import *
from support_memory.conformance.races import *
from support_memory.conformance.relations import *
