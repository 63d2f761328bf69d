"""What a server whose doors are blocked costs the jobs: nothing, because its scheduler is another process.

A request that keeps the server's interpreter busy is played by a signal handler that burns a core. Meanwhile
a program submits jobs to the same store, one after the other: from each submit to the start on the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import tests.integration
from tests.support.raymc import write_config
from tests.support.system import FAST

import ray_multicluster_scheduler as raymc
from benchmarks.measure import Line, Report, Size, main, percentile, ratio, summary
from ray_multicluster_scheduler.testing import FakeRay, ScriptedRunner

SERVER = Path(tests.integration.__path__[0]) / "hampered_server.py"
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 4, Size.FULL: 8}
JOBS = {Size.SMOKE: 2, Size.QUICK: 20, Size.FULL: 40}


def dispatched(fake: FakeRay, jobs: int) -> float:
    """Return the median of milliseconds from a submit to its start on the cluster."""
    took: list[float] = []
    for _ in range(jobs):
        begun = time.time()
        job = raymc.submit_job("echo")
        job.wait()
        (start,) = (run.start for run in fake.runs if run.submission_id == job)
        took.append((start - begun) * 1000)
    return percentile(took, 50)


async def both(folder: Path, rounds: int, jobs: int) -> tuple[list[float], list[float]]:
    """Measure with open doors and with blocked ones, in turns."""
    async with FakeRay(name="a", cpus=4, runner=ScriptedRunner()) as fake:
        config = write_config(folder, [fake.spec()], **FAST)
        environ = {
            "RAY_MULTICLUSTER_HOME": str(folder / "home"),
            "RAY_MULTICLUSTER_CONFIG": str(config),
            "RAY_MULTICLUSTER_BACKGROUND": "0",  # the server's scheduler is the one that is measured
        }
        with patch.dict(os.environ, environ):
            server = await asyncio.create_subprocess_exec(
                sys.executable, SERVER, config, folder, stderr=asyncio.subprocess.PIPE
            )
            try:
                await _said(server, "Ctrl-C")
                await asyncio.to_thread(dispatched, fake, jobs)  # the scheduler leads, everything is imported
                free, blocked = [], []
                for _ in range(rounds):
                    free.append(await asyncio.to_thread(dispatched, fake, jobs))
                    (folder / "blocked").touch()
                    server.send_signal(signal.SIGUSR1)
                    await _said(server, "burning")
                    blocked.append(await asyncio.to_thread(dispatched, fake, jobs))
                    (folder / "blocked").unlink()
                return free, blocked
            finally:
                (folder / "blocked").unlink(missing_ok=True)
                raymc.get_unified_scheduler().stop()
                with contextlib.suppress(ProcessLookupError):
                    server.terminate()
                await server.communicate()


async def _said(server: asyncio.subprocess.Process, words: str) -> None:
    assert server.stderr is not None
    while line := (await server.stderr.readline()).decode():
        if words in line:
            return
    raise RuntimeError(f"the server has ended before it said {words!r}")


def measure(size: Size) -> Report:
    """Measure how soon jobs start beside a server whose doors are open, and blocked."""
    with tempfile.TemporaryDirectory() as folder:
        free, blocked = asyncio.run(both(Path(folder), ROUNDS[size], JOBS[size]))
    lines: tuple[Line, ...] = (
        summary("submit to start, doors open", free, unit="ms"),
        summary("submit to start, doors blocked", blocked, unit="ms"),
        ratio("submit to start, blocked / open", blocked, free),
    )
    return Report(
        name="blocked_door",
        lines=lines,
        notes=(
            f"Medians of {JOBS[size]} jobs, one after the other, from a program on the same store. Blocked "
            "doors burn a core all the time: program, scheduler and cluster share the other one of two.",
        ),
    )


if __name__ == "__main__":
    main(measure)
