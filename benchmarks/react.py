"""Reaction: from the end of a job on its cluster to the start of the next one (a fake cluster over HTTP)."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import pairwise
from pathlib import Path

from benchmarks.measure import Line, Report, Size, main, percentile
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.model.states import FINAL
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.testing import FakeRay, ScriptedRunner

JOBS = {Size.SMOKE: 3, Size.QUICK: 15, Size.FULL: 60}


async def gaps(jobs: int, folder: Path) -> list[float]:
    """Return the seconds between the end of each job and the start of the next, on a cluster for one job."""
    async with FakeRay(name="a", cpus=1, runner=ScriptedRunner()) as fake:
        config = Config(path=folder / "clusters.yaml", clusters=(fake.spec(),), settings=Settings())
        scheduler = EmbeddedScheduler(config, directory=folder / "state", environ={})
        scheduler.start()
        try:
            requests = [JobRequest(entrypoint="sleep 0.7", user="ann") for _ in range(jobs)]
            made = await asyncio.to_thread(scheduler.service.submit, requests)
            await asyncio.to_thread(_wait, scheduler, [job.submission_id for job in made])
        finally:
            await asyncio.to_thread(scheduler.stop)
        runs = sorted(fake.runs, key=lambda run: run.start)
        return [later.start - (earlier.end or later.start) for earlier, later in pairwise(runs)]


def _wait(scheduler: EmbeddedScheduler, ids: list[str]) -> None:
    mark = 0
    while any(job.state not in FINAL for job in scheduler.store.jobs.get_many(ids).values()):
        scheduler.ensure_scheduled()
        mark = scheduler.store.changes.wait(mark, timeout_s=1.0)


def measure(size: Size) -> Report:
    """Measure how soon a freed place is used."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(gaps(JOBS[size], Path(folder)))
    return Report(
        name="react",
        lines=(
            Line(what="end of a job to the next start, median", value=percentile(found, 50), unit="s"),
            Line(what="end of a job to the next start, p90", value=percentile(found, 90), unit="s"),
        ),
        notes=("Default settings; jobs of 0.7 s on a cluster that has room for one.",),
    )


if __name__ == "__main__":
    main(measure)
