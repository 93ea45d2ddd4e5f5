"""FastAPI and SQLAlchemy: an order and the job that confirms it are stored together, or neither is.

DATABASE_URL=postgresql://user@host/shop uvicorn fastapi_app:web
DATABASE_URL=postgresql://user@host/shop unstuck worker fastapi_app:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from unstuck import Unstuck

URL = os.environ["DATABASE_URL"]
app = Unstuck(URL)
engine = create_async_engine(URL.replace("postgresql://", "postgresql+asyncpg://"))
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    confirmed: Mapped[bool] = mapped_column(default=False)


class NewOrder(BaseModel):
    email: str


@app.task(queue="mail")
async def confirm(number: int) -> str:
    async with sessions.begin() as session:
        order = await session.get_one(Order, number)
        order.confirmed = True  # where a shop would send its letter
        return f"confirmed to {order.email}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield
        await engine.dispose()


web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=201)
async def add_order(new: NewOrder) -> dict[str, object]:
    async with sessions.begin() as session:
        order = Order(email=new.email)
        session.add(order)
        await session.flush()  # gives it its number
        [job] = await app.enqueue_in(session, [confirm.call(order.number)])
        if "@" not in new.email:
            raise HTTPException(400, "no address")  # undoes both
    return {"number": order.number, "job": job.id}


@web.get("/orders")
async def orders() -> list[dict[str, object]]:
    async with sessions() as session:
        found = await session.scalars(select(Order).order_by(Order.number))
        return [{"email": order.email, "confirmed": order.confirmed} for order in found]
