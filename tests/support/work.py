"""Work off what is due."""

from unstuck import Unstuck, Worker


async def burst(app: Unstuck, *, concurrency: int = 10) -> None:
    """Run a worker in this process until nothing is due any more."""
    await Worker(app, burst=True, concurrency=concurrency).run()
