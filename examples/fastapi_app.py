"""FastAPI and SQLAlchemy: an order and the job that confirms it are stored together, or neither is.

DATABASE_URL=postgresql://user@host/shop uvicorn fastapi_app:web
DATABASE_URL=postgresql://user@host/shop unstuck worker fastapi_app:app
pytest test_fastapi_app.py  # needs no server
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

import fastapi
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from unstuck import Depends, Unstuck

URL = os.environ["DATABASE_URL"]
app = Unstuck(URL)
engine = create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    confirmed: Mapped[bool] = mapped_column(default=False)


class NewOrder(BaseModel):
    email: str


def transaction() -> Iterator[Session]:
    with Session(engine) as session, session.begin():
        yield session


@app.task(queue="mail")
def confirm(number: int, db: Session = Depends(transaction)) -> str:
    order = db.get_one(Order, number)
    order.confirmed = True  # where a shop would send its letter
    return f"confirmed to {order.email}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:
        Base.metadata.create_all(engine)
        yield
        engine.dispose()


web = FastAPI(lifespan=lifespan)
Transaction = Annotated[Session, fastapi.Depends(transaction, scope="function")]  # ends before the answer


@web.post("/orders", status_code=201)
def add_order(new: NewOrder, db: Transaction) -> dict[str, object]:
    db.add(order := Order(email=new.email))
    db.flush()  # gives it its number
    [job] = app.enqueue_in_sync(db, [confirm.call(order.number)])
    if "@" not in new.email:
        raise HTTPException(400, "no address")  # undoes both
    return {"number": order.number, "job": job.id}


@web.get("/orders")
def orders(db: Transaction) -> list[dict[str, object]]:
    found = db.scalars(select(Order).order_by(Order.number))
    return [{"email": order.email, "confirmed": order.confirmed} for order in found]
