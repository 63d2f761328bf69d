"""A peer on another database: Procrastinate on a PostgreSQL of its own, where both are installed.

Neither is needed for anything else, so neither is a dependency: `pip install procrastinate psycopg[binary]`,
and `initdb` and `postgres` on the path. PostgreSQL runs with its defaults: a commit is on the disk.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: PostgreSQL refuses to run as root.
_USER = "postgres" if os.geteuid() == 0 else None


def missing() -> str | None:
    """Say what is not installed; None: all is there."""
    names = [name for name in ("procrastinate", "psycopg") if importlib.util.find_spec(name) is None]
    names += [name for name in ("initdb", "postgres") if shutil.which(name) is None]
    return f"not installed: {', '.join(names)}" if names else None


@contextmanager
def server() -> Iterator[str]:
    """Run PostgreSQL on a socket in a folder of its own; yield how to connect to it."""
    with tempfile.TemporaryDirectory() as folder:
        if _USER is not None:
            shutil.chown(folder, _USER)
        data = f"{folder}/data"
        subprocess.run(
            ["initdb", "-D", data, "-U", "bench", "-A", "trust"],
            check=True,
            stdout=subprocess.DEVNULL,
            user=_USER,
            cwd=folder,
        )
        options = ["-k", folder, "-c", "listen_addresses=", "-c", "max_connections=200"]
        running = subprocess.Popen(
            ["postgres", "-D", data, *options], stderr=subprocess.DEVNULL, user=_USER, cwd=folder
        )
        try:
            address = f"host={folder} user=bench dbname=postgres"
            _until_it_answers(address)
            yield address
        finally:
            running.terminate()
            running.wait()


def procrastinate(address: str, jobs: int, *, submitters: int, workers: int) -> float:
    """Return jobs per second: threads defer one job at a time, one process works them off."""
    package = importlib.import_module("procrastinate")
    app = package.App(connector=package.SyncPsycopgConnector(conninfo=address, max_size=submitters))

    with app.open():
        app.schema_manager.apply_schema()
        started = time.perf_counter()
        worker = threading.Thread(target=lambda: asyncio.run(_work(package, address, jobs, workers)))
        worker.start()
        _defer_all(app, jobs, submitters)
        worker.join()
        return jobs / (time.perf_counter() - started)


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


def _until_it_answers(address: str) -> None:
    psycopg = importlib.import_module("psycopg")
    ends_at = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)
        else:
            return
