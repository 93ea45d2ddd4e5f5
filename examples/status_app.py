"""FastAPI and a SQLite file: one request starts a job, others ask how far it is, take its result or stop it.

uvicorn status_app:web
unstuck worker status_app:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from unstuck import Status, UnknownJob, Unstuck, current_job

app = Unstuck("sqlite:///status.db")


@app.task(retry=3, timeout=600)
async def export(rows: int) -> str:
    job = current_job()
    for row in range(rows):
        job.progress(row / rows)  # as often as you like: it is stored twice a second
    return f"{rows} rows"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/exports", status_code=202)
async def start(rows: int) -> dict[str, str]:
    job = await export.enqueue(rows)  # on disk when this returns
    return {"job": job.id}


@web.get("/jobs/{id}")
async def show(id: str) -> dict[str, object]:
    try:
        job = await app.job(id)
    except UnknownJob as error:
        raise HTTPException(404, str(error)) from None
    if job.status is Status.COMPLETED:
        return {"status": job.status, "result": job.result}
    why = await (await app.jobs()).explain(id)  # in one sentence, for people
    return {"status": job.status, "progress": job.progress, "why": why}


@web.delete("/jobs/{id}")
async def stop(id: str) -> dict[str, bool]:
    return {"cancelled": await (await app.jobs()).cancel([id]) == 1}  # also while it runs
