"""The verb that runs jobs until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import click

from unstuck import ConfigError, Reaper, SchemaError, StoreDamaged, UnstuckError, Worker, log_json
from unstuck.cli.apps import load_app
from unstuck.cli.filters import seconds
from unstuck.cli.output import plainly, store_argument
from unstuck.cli.reload import changed
from unstuck.cli.settings import LEVELS, Settings
from unstuck.cli.settings import load as load_settings
from unstuck.config.turns import FAIR
from unstuck.operations.store_urls import same_store
from unstuck.text.redact import redact
from unstuck.worker.supervisor import (
    AT_ONCE,
    BAD_INPUT,
    DONE,
    FAILED,
    HALTED,
    RECYCLED,
    StartReport,
    Supervisor,
    command,
    reporting,
)

GARBAGE = 10_000  # objects that came and stayed, before a worker looks for cycles among them
log = logging.getLogger("unstuck.cli")

metrics_option = click.option(
    "--metrics-port", type=int, help="Serve /metrics for Prometheus here, on loopback."
)
MOMENT = 0.2  # seconds
# What people and service managers send to end a program.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@click.command()
@click.argument("app", metavar="MODULE:APP", required=False)
@click.option("--queue", "only", multiple=True, help="Only this queue; several take fair turns.")
@click.option("--queues", help="Only these queues: a,b in strict order, or by weight: a=5,b=1.")
@click.option(
    "--include",
    multiple=True,
    metavar="MODULE",
    help="Import this module for its tasks; may be given several times.",
)
@click.option(
    "--processes",
    type=int,
    help="Worker processes under one supervisor [default: 1]; 0 works in this process, without one.",
)
@click.option("--concurrency", type=int, help="Jobs at a time in each process. [default: 10]")
@click.option(
    "--max-jobs", type=int, help="Replace each process when it has run so many jobs. [default: never]"
)
@click.option(
    "--grace", type=seconds, help="Time running jobs get when it is stopped: 90 or 90s, 5m [default: 30s]"
)
@click.option(
    "--recovery",
    type=seconds,
    help="Time between recoveries of lost jobs, 0 switches them off. [default: 60s]",
)
@click.option("--burst", is_flag=True, help="End when nothing is due any more.")
@click.option(
    "--until-idle", is_flag=True, help="End when nothing is left, retries and delayed jobs included."
)
@click.option("--reload", is_flag=True, help="Start again when a Python file here changes; for development.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings. [default: unstuck.toml, if there]")
@metrics_option
@click.option("--log-level", type=click.Choice(LEVELS), help="[default: INFO]")
@click.option("--under", hidden=True, help="The supervisor that started this process.")
@store_argument
@plainly
def worker(
    app: str | None,
    only: tuple[str, ...],
    include: tuple[str, ...],
    config: Path | None,
    burst: bool,
    until_idle: bool,
    reload: bool,
    under: str | None,
    **given: Any,
) -> None:
    """Run the jobs of MODULE:APP, for example shop.tasks:app.

    SIGTERM and Ctrl-C take no more jobs and wait for the running ones; a second one ends at once.
    """
    if under is None:
        log_json()
    _choose_one({"--burst": burst, "--until-idle": until_idle}, "are two ends of a worker")
    _choose_one({"--queue": only, "--queues": given["queues"]}, "both name its queues")
    settings = load_settings(
        config, os.environ, lambda name: load_app(name, include).queues, app=app, **given
    )
    log_json(settings.log_level)
    if settings.app is None:
        raise ConfigError("no app is named: write it as MODULE:APP, for example shop.tasks:app")
    if under is None and settings.metrics_port is not None:
        import_module("unstuck.operations.metrics")  # fails now if its library is missing
    if under is None and settings.processes > 0:
        options = [("--queue", queue) for queue in only] + [("--include", module) for module in include]
        options += [
            (f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None
        ]
        options += [("--config", str(config))] if config else []
        flags = ["--burst"] if burst else ["--until-idle"] if until_idle else []
        argv = command(["worker", settings.app, *chain.from_iterable(options), *flags])
        sys.exit(asyncio.run(supervise(argv, settings, burst=burst or until_idle, reload=reload)))
    found = load_app(settings.app, include)
    found.tune(settings.policies(found.queues))
    queues, order = (only or None, FAIR) if only or not settings.queues else settings.queues
    apps = found.url
    url = settings.store or apps
    # What is imported by now stays, and jobs leave no cycles behind: looking for garbage less often saves a tenth.
    gc.freeze()
    gc.set_threshold(GARBAGE)

    async def work() -> int:
        one = Worker(
            found,
            queues=queues,
            order=order,
            concurrency=settings.concurrency,
            grace=settings.grace,
            recovery=settings.recovery,
            burst=burst,
            until_idle=until_idle,
            max_jobs=settings.max_jobs,
            supervised=under is not None,
        )
        on_signals(one.stop) if under is None else obey(one.stop)
        report = StartReport(one.id, url, one.recovery)
        try:
            with nullcontext(one.spent.is_set) if under is None else reporting(under, report) as report_spent:
                async with found.using(url), _when(one.spent, report_spent):
                    _note_another(url, settings.store_by, apps)
                    with metrics(url, settings.metrics_port if under is None else None):
                        await one.run()
        except StoreDamaged as error:  # also under the next worker
            log.critical("halted: %s", error)
            return HALTED
        except SchemaError as error:  # it will be the wrong store for the next one, too
            raise ConfigError(str(error)) from error
        except UnstuckError:
            raise
        except Exception as error:  # noqa: BLE001 - it is logged, as a line like all others
            _log_failure(error)
            return FAILED
        finally:
            if one.stuck:
                leave(_code(one, under))
        return _code(one, under)

    sys.exit(_run(work()))


@asynccontextmanager
async def _when(event: asyncio.Event, call: Callable[[], object]) -> AsyncIterator[None]:
    """Make the call once the event is set."""

    async def wait() -> None:
        await event.wait()
        call()

    waiting = asyncio.create_task(wait())
    try:
        yield
    finally:
        waiting.cancel()


def _code(one: Worker, under: str | None) -> int:
    """The exit code of a worker that ended in order."""
    if one.halted:
        return HALTED
    return RECYCLED if one.spent.is_set() and under is not None else DONE


def _choose_one(options: Mapping[str, Any], why: str) -> None:
    if all(options.values()):
        raise ConfigError(f"{' and '.join(options)} {why}: choose one")


def _note_another(url: str, by: str, apps: str) -> None:
    """Log which store is used, and why, if that is not the one of the app."""
    if not same_store(url, apps):
        shown = redact(url, 500), by, redact(apps, 500)
        log.info("uses store %s, which %s names, and not that of the app: %s", *shown)


def _run(work: Coroutine[Any, Any, int]) -> int:
    """On uvloop where it is installed: it saves a tenth of what a short job costs."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):  # not around the run: an error that is being handled stands in every stack
        factory = import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def _log_failure(error: Exception) -> None:
    """In one line; a lifespan's error has a note that says whose it is."""
    what = " ".join(getattr(error, "__notes__", ())) or "the worker failed"
    log.error("%s: %s: %s", what, type(error).__name__, error, exc_info=error)


async def supervise(argv: list[str], settings: Settings, *, burst: bool, reload: bool) -> int:
    """Until the workers have ended for good, or, with ``reload``, until somebody stops us."""
    stopped = asyncio.Event()
    new = partial(Supervisor, argv, processes=settings.processes, grace=settings.grace, burst=burst)
    supervisor = new()

    def stop(*, at_once: bool = False) -> None:
        stopped.set()
        supervisor.stop(at_once=at_once)

    on_signals(stop)
    while True:
        code, file = await _once(supervisor, settings, stopped, Path.cwd() if reload else None)
        if stopped.is_set() or file is None:
            return code
        log.info("%s changed: starting again", file)
        supervisor = new()


async def _once(
    supervisor: Supervisor, settings: Settings, stopped: asyncio.Event, folder: Path | None
) -> tuple[int, Path | None]:
    """One life of a supervisor, and which file below the folder changed, if one ended it."""
    running = asyncio.create_task(supervisor.run())
    running.add_done_callback(lambda _: supervisor.up.set())
    watching = asyncio.create_task(changed(folder)) if folder else None
    await supervisor.up.wait()
    try:
        with metrics(supervisor.report.store if supervisor.report else "", settings.metrics_port):
            if watching is None:
                return await running, None
            await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
            if running.done() and running.result() == BAD_INPUT:  # wait until somebody has fixed it
                ending = asyncio.create_task(stopped.wait())
                await asyncio.wait([ending, watching], return_when=asyncio.FIRST_COMPLETED)
                ending.cancel()
            supervisor.stop()
            return await running, watching.result() if watching.done() else None
    except ConfigError:
        supervisor.stop()
        await running
        raise
    finally:
        if watching:
            watching.cancel()


def metrics(
    store: str | Callable[[], Any], port: int | None, reaper: Reaper | None = None
) -> AbstractContextManager[object]:
    """Serves metrics while it is entered, if there is a port to do so; the library is loaded only then."""
    if port is None or not store:
        return nullcontext()
    from unstuck.operations.metrics import serve_metrics

    server = serve_metrics(store, port, scan=reaper.last_scan if reaper else lambda: None)
    log.info("metrics at http://127.0.0.1:%d/metrics", server.port)
    return server


class Stop(Protocol):
    def __call__(self, *, at_once: bool = False) -> None: ...


def on_signals(stop: Stop) -> None:
    """The first signal stops gently, the next one at once. Two within a moment are one: some send it twice."""
    loop = asyncio.get_running_loop()
    first: list[float] = []

    def end() -> None:
        if not first:
            first.append(loop.time())
            stop()
        elif loop.time() - first[0] > MOMENT:
            stop(at_once=True)

    for number_ in ENDING:
        loop.add_signal_handler(number_, end)


def obey(stop: Stop) -> None:
    """Under a supervisor, which distinguishes the two."""
    loop = asyncio.get_running_loop()
    for number_ in ENDING:
        loop.add_signal_handler(number_, stop)
    loop.add_signal_handler(AT_ONCE, partial(stop, at_once=True))


def leave(code: int) -> None:
    """End the process although a handler does not: its job has been given back, and nobody can stop it."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
