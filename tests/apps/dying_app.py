"""An app whose workers die as soon as they begin."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from unstuck import Unstuck

app = Unstuck(os.environ["UNSTUCK_STORE"])


@app.lifespan
@asynccontextmanager
async def fall() -> AsyncIterator[None]:
    os._exit(9)
    yield


@app.task
async def never() -> None:
    pass
