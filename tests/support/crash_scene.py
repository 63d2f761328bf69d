"""A store, clusters, and scheduler processes that are killed at named points and started again."""

import asyncio
import json
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.support import crash_runner
from tests.support.crash_runner import Orders
from tests.support.oracle import broken_promises
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store, open_store
from ray_multicluster_scheduler.testing import FakeRay

#: New processes are forked from one that has imported everything: many of them start in the time of one.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([crash_runner.__name__])


class Running:
    """One scheduler process."""

    def __init__(self, orders: Orders) -> None:
        self._said, says = processes.Pipe(duplex=False)
        self.process: ForkServerProcess = processes.Process(target=crash_runner.main, args=(orders, says))
        self.process.start()
        says.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    async def until_it_works(self) -> None:
        """Wait until it has submitted everything."""
        while await asyncio.to_thread(self._said.recv) != "working":
            pass

    async def wait(self) -> tuple[int, list[str]]:
        """Wait for its end; return its exit code and what it said."""
        await asyncio.to_thread(self.process.join)
        said = []
        while self._said.poll():
            try:
                said.append(self._said.recv())
            except EOFError:
                break
        self._said.close()
        code = self.process.exitcode
        assert code is not None
        self.process.close()
        return code, said


class Scene:
    """Clusters, real or fake, a place for the store, and the scheduler processes that come and go."""

    def __init__(
        self,
        directory: Path,
        clusters: Mapping[str, Mapping[str, str]],
        settings: Mapping[str, Any],
        fakes: Sequence[FakeRay] = (),
    ) -> None:
        self.directory = directory
        self.fakes = {fake.name: fake for fake in fakes}
        self.journal = directory / "journal"
        self.journal.touch()
        (directory / "clusters.yaml").write_text(json.dumps({"clusters": clusters, "scheduler": settings}))

    def job(self, submission_id: str, *, seconds: float = 0.3, does: str = "", **more: Any) -> dict[str, Any]:
        """A request for a job that writes down when it starts and ends; between, it sleeps or `does` that."""
        note = f'"$RAY_MULTICLUSTER_SUBMISSION_ID $RAY_MULTICLUSTER_ATTEMPT" >> {self.journal}'
        entrypoint = f"echo start {note}; {does or f'sleep {seconds}'}; echo end {note}"
        return {"submission_id": submission_id, "entrypoint": entrypoint, **more}

    @property
    def waits(self) -> str:
        """What a job does that runs until `go_on`."""
        return f"until [ -e {self.directory}/go-on ]; do sleep 0.1; done"

    def go_on(self) -> None:
        """Let the jobs end that wait for it."""
        (self.directory / "go-on").touch()

    def start(self, *requests: dict[str, Any], **orders: Any) -> Running:
        """Start a scheduler process that submits these jobs and works until all have ended."""
        paths = {"clusters_yaml": self.directory / "clusters.yaml", "state": self.directory / "state"}
        return Running(Orders(**paths, requests=requests, **orders))

    async def crash(self, at: str, *requests: dict[str, Any], **orders: Any) -> list[str]:
        """Run a scheduler process that kills itself there; return what it said before."""
        code, said = await self.start(*requests, crash_at=at, **orders).wait()
        assert code == -signal.SIGKILL, f"{at} was not reached"
        return said

    async def recover(self, *requests: dict[str, Any]) -> list[str]:
        """Run a scheduler process that works until all jobs have ended."""
        code, said = await self.start(*requests).wait()
        assert code == 0
        return said

    async def pause(self, running: Running) -> None:
        """Stop a process as Ctrl-Z does, at a moment when it does not hold the database."""
        while True:
            os.kill(running.pid, signal.SIGSTOP)
            await eventually(lambda: _is_stopped(running.pid))  # what a thread asks the system for may go on
            database = self.directory / "state" / "jobs.db"
            try:
                with closing(sqlite3.connect(database, timeout=1, isolation_level=None)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(running.pid, signal.SIGCONT)
                await asyncio.sleep(0)
            else:
                return

    def open(self) -> Store:
        return open_store(self.directory / "state")

    def jobs(self) -> dict[str, Job]:
        with closing(self.open()) as store:
            return {job.submission_id: job for job in store.jobs.list()}

    def starts(self, submission_id: str) -> int:
        """How often a job says that it was started."""
        return self.journal.read_text().split("\n").count(f"start {submission_id} 1")

    def overlapped(self) -> list[str]:
        """Jobs that were started while they ran, by their own words."""
        running, found = set(), []
        for line in self.journal.read_text().splitlines():
            what, job_id, _ = line.split()
            if what == "start" and job_id in running:
                found.append(job_id)
            (running.add if what == "start" else running.discard)(job_id)
        return found

    def problems(self, *accepted: str, may_overlap: tuple[str, ...] = ()) -> list[str]:
        """Every promise that was broken, by what the clusters and the jobs themselves say."""
        with closing(self.open()) as store:
            broken = broken_promises(store, self.fakes.values(), accepted, may_overlap=may_overlap)
        return broken + [f"I2 {job_id}, by its own words" for job_id in self.overlapped() if not may_overlap]

    def all_succeeded_once(self, *ids: str) -> bool:
        jobs = self.jobs()
        return all(jobs[each].state is JobState.SUCCEEDED and self.starts(each) == 1 for each in ids)


def _is_stopped(pid: int) -> bool:
    """Tell whether all threads of a process have stopped, as Linux says it."""
    states = [
        path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}
