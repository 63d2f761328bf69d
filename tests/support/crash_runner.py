"""A scheduler process for the crash tests: submits what it is told, works until all jobs have ended, exits.

It can be told to kill itself, as `kill -9` does, when it passes a named point for the n-th time, and to have
a bug, to show that the tests would find it. The product knows nothing of either.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.client.packing import packed
from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.core.instructions import WriteMoves
from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.engine.store_io import MoveWriter
from ray_multicluster_scheduler.errors import DuplicateSubmission
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.executors.registry import Registry
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.service import JobService
from ray_multicluster_scheduler.store import Store


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What one scheduler process is to do."""

    clusters_yaml: Path
    state: Path
    requests: tuple[dict[str, Any], ...] = ()
    #: `point:n`, or nothing.
    crash_at: str = ""
    sends_before_it_writes: bool = False


class CrashPoint:
    """Ends this process without a word at one named point."""

    def __init__(self, where: str) -> None:
        self._point, _, number = where.rpartition(":")
        self._number = int(number or 0)
        self._passed: Counter[str] = Counter()

    def __call__(self, point: str) -> None:
        self._passed[point] += 1
        if point == self._point and self._passed[point] == self._number:
            os.kill(os.getpid(), signal.SIGKILL)


def crash_while_adding(store: Store, crash_point: CrashPoint) -> None:
    """Plant crash points around the commit of the submitting side."""
    add = store.jobs.add

    def add_or_crash(*args: Any, **kwargs: Any) -> Any:
        crash_point("submit:before-commit")
        accepted = add(*args, **kwargs)
        crash_point("submit:after-commit")
        return accepted

    vars(store.jobs)["add"] = add_or_crash


def crash_while_packing(crash_point: CrashPoint) -> None:
    keep = PackageStore._keep

    def keep_or_crash(self: PackageStore, *args: Any) -> None:
        crash_point("pack:before-keep")
        keep(self, *args)

    PackageStore._keep = keep_or_crash


def send_before_writing() -> None:
    """Plant a bug: a job is sent first, and where it was sent is written down afterwards."""
    apply = MoveWriter._apply

    async def send_and_apply(self: MoveWriter, batch: Sequence[WriteMoves]) -> tuple[Job, ...]:
        context = self._context
        for move in [move for wanted in batch for move in wanted.moves]:
            if move.new is JobState.PLACED:
                target, origin = context.config.cluster(move.changes["cluster"]), context.store.store_id
                spec, clusters = context.store.jobs.get(move.submission_id).spec, context.config.clusters
                number = move.attempt + 1
                request = compose_submit(move.submission_id, spec, number, target, clusters, origin=origin)
                await RayJobsExecutor(context.connections[target.name]).start(request)
                context.crash_point("send:after-post")
        return await apply(self, batch)

    MoveWriter._apply = send_and_apply


def main(orders: Orders, said: Connection) -> None:
    """Do what is ordered, and say what was accepted."""
    crash_point = CrashPoint(orders.crash_at)
    crash_while_packing(crash_point)
    if orders.sends_before_it_writes:
        send_before_writing()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config = load_config(orders.clusters_yaml)
    scheduler = EmbeddedScheduler(config, directory=orders.state, environ={}, crash_point=crash_point)
    scheduler.start()
    parts = scheduler.parts
    crash_while_adding(parts.store, crash_point)
    service = JobService(parts.config, parts.store, scheduler.clock, parts.hub, Registry())
    try:
        for request in orders.requests:
            try:
                accepted = service.submit([packed(JobRequest(user="ann", **request), parts.packages)])
            except DuplicateSubmission:
                said.send(f"duplicate {request['submission_id']}")
            else:
                said.send(f"accepted {accepted[0].submission_id}")
        said.send("working")
        mark = 0
        while not all(job.final for job in parts.store.jobs.list()):
            scheduler.ensure_scheduled()
            mark = parts.store.changes.wait(mark, timeout_s=0.5)
    finally:
        scheduler.stop()
