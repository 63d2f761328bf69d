"""A peer on PostgreSQL: Procrastinate, where it is installed (`pip install procrastinate`).

PostgreSQL runs with its defaults: a commit is on the disk.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import multiprocessing
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.support.postgres import PostgresServer, binaries


def missing() -> str | None:
    """Say what is not installed; None: all is there."""
    names = [name for name in ("procrastinate", "psycopg") if importlib.util.find_spec(name) is None]
    if names:
        return f"not installed: {', '.join(names)}; `pip install {' '.join(names)}`"
    return "no PostgreSQL is installed; Debian's package is postgresql" if binaries() is None else None


@contextmanager
def new_database(server: PostgresServer) -> Iterator[str]:
    """Create a database on a server; yield how to connect to it."""
    psycopg, name = importlib.import_module("psycopg"), f"peer_{uuid.uuid4().hex[:8]}"
    whole = server.url().partition("?")[0]
    with psycopg.connect(whole, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield whole.removesuffix("postgres") + name


def procrastinate(address: str, jobs: int, *, submitters: int, workers: int) -> float:
    """Return jobs per second: threads of one process defer one job at a time, another works them off."""
    package = importlib.import_module("procrastinate")
    app = package.App(connector=package.SyncPsycopgConnector(conninfo=address))
    with app.open():
        app.schema_manager.apply_schema()
    with other_process(_Deferring.open, address, submitters) as program:
        started = time.perf_counter()
        worker = threading.Thread(target=lambda: asyncio.run(_work(package, address, jobs, workers)))
        worker.start()
        program(_Deferring.defer, jobs, submitters)
        worker.join()
        return jobs / (time.perf_counter() - started)


@contextmanager
def other_process(begin: Callable[..., None], *arguments: object) -> Iterator[Callable[..., object]]:
    """Start a process that has begun its work; yield what calls a function there and waits for it."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=begin, initargs=arguments) as pool:
        pool.submit(int).result()  # it has imported what it needs, and is connected
        yield lambda function, *given: pool.submit(function, *given).result()


class _Deferring:
    """The program that submits to Procrastinate, in its process."""

    app: Any

    @classmethod
    def open(cls, address: str, submitters: int) -> None:
        package = importlib.import_module("procrastinate")
        cls.app = package.App(connector=package.SyncPsycopgConnector(conninfo=address, max_size=submitters))
        cls.app.open()

    @classmethod
    def defer(cls, jobs: int, submitters: int) -> None:
        _defer_all(cls.app, jobs, submitters)
        cls.app.close()


def _defer_all(app: Any, jobs: int, submitters: int) -> None:
    def submitter(number: int) -> None:
        for _ in range(jobs // submitters):
            app.configure_task("run").defer(number=number)

    threads = [threading.Thread(target=submitter, args=(number,)) for number in range(submitters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _work(package: Any, address: str, jobs: int, workers: int) -> None:
    """Run a worker until it has done all jobs."""
    app = package.App(connector=package.PsycopgConnector(conninfo=address, max_size=workers))
    left, done = jobs, asyncio.Event()

    @app.task(name="run")  # type: ignore[untyped-decorator]
    async def run(number: int) -> int:
        nonlocal left
        left -= 1
        if not left:
            done.set()
        return number

    async with app.open_async():
        working = asyncio.create_task(
            app.run_worker_async(concurrency=workers, install_signal_handlers=False)
        )
        await done.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)  # it ends what it is doing first
