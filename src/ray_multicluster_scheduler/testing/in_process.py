"""Clusters inside this process for maps, executors and joblib: no Ray, no network."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from ray_multicluster_scheduler.errors import NeverFits
from ray_multicluster_scheduler.tasks.map_plan import Chunk
from ray_multicluster_scheduler.tasks.map_run import (
    Broken,
    Ended,
    Error,
    Lost,
    NoRoom,
    Placed,
    Ready,
    Told,
    Work,
    standing_in,
)


@dataclass(slots=True)
class _Cluster:
    total: dict[str, float]
    used: dict[str, float] = field(default_factory=dict)
    dead: bool = False

    def fits(self, claim: Mapping[str, float]) -> bool:
        free = {name: amount - self.used.get(name, 0.0) for name, amount in self.total.items()}
        return not self.dead and all(free.get(name, 0.0) >= amount for name, amount in claim.items())

    def add(self, claim: Mapping[str, float], sign: int) -> None:
        for name, amount in claim.items():
            self.used[name] = self.used.get(name, 0.0) + sign * amount


class InProcessClusters:
    """Within its context, maps and executors of this process run on these clusters: a thread for each worker.

        with InProcessClusters({"mac": {"CPU": 2}, "centos": {"CPU": 4}}) as clusters:
            assert list(map_over_clusters(str, range(3))) == ["0", "1", "2"]

    Functions and items are not pickled. `kill` loses a cluster with all that runs there; what its threads
    have begun goes on to its end, and nobody hears of it, as on a cluster that was cut off.
    """

    def __init__(self, clusters: Mapping[str, Mapping[str, float]]) -> None:
        self._clusters = {name: _Cluster(dict(total)) for name, total in clusters.items()}
        self._running: list[_ThreadWorkers] = []
        self._changed = threading.Condition()
        self._undo = ExitStack()

    def __enter__(self) -> InProcessClusters:
        self._undo.enter_context(standing_in(self._new_workers))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def kill(self, cluster: str) -> None:
        """Lose a cluster with all its workers; no new ones come there."""
        with self._changed:
            self._clusters[cluster].dead = True
            self._clusters[cluster].used.clear()
            running = list(self._running)
        for workers in running:
            workers.lose(cluster)

    def revive(self, cluster: str) -> None:
        """Have a cluster back, with nothing on it."""
        with self._changed:
            self._clusters[cluster].dead = False
            self._changed.notify_all()

    def used(self, cluster: str) -> Mapping[str, float]:
        """Return what workers hold of a cluster."""
        with self._changed:
            return {name: amount for name, amount in self._clusters[cluster].used.items() if amount}

    def _new_workers(self) -> _ThreadWorkers:
        workers = _ThreadWorkers(self)
        with self._changed:
            self._running.append(workers)
        return workers

    def take(self, work: Work) -> str | None:
        """Take what a worker holds from a cluster that has room, and return its name."""
        first = [work.preferred_cluster] if work.preferred_cluster in self._clusters else []
        with self._changed:
            for name in dict.fromkeys([*first, *self._clusters]):
                if self._clusters[name].fits(work.resources):
                    self._clusters[name].add(work.resources, 1)
                    return name
        return None

    def wait_for_room(self, work: Work, is_wanted: Callable[[], bool]) -> str | None:
        """Do the same as soon as there is room; None: nobody wants it any more."""
        with self._changed:
            while (name := self.take(work)) is None and is_wanted():
                self._changed.wait()
        return name

    def give_back(self, cluster: str, work: Work) -> None:
        """Undo `take`."""
        with self._changed:
            if not self._clusters[cluster].dead:
                self._clusters[cluster].add(work.resources, -1)
            self._changed.notify_all()

    def ended(self, workers: _ThreadWorkers) -> None:
        """Forget workers that were closed."""
        with self._changed:
            self._running.remove(workers)
            self._changed.notify_all()

    def capacity(self, resources: Mapping[str, float], *, alive: bool = True) -> int:
        """Return how many workers fit on all clusters that live, or that there are."""
        totals = [each.total for each in self._clusters.values() if not (alive and each.dead)]
        return sum(
            int(min(total.get(name, 0.0) / amount for name, amount in resources.items())) for total in totals
        )


@dataclass(slots=True)
class _Worker:
    cluster: str
    chunks: queue.SimpleQueue[tuple[Chunk, Sequence[Any]] | None] = field(default_factory=queue.SimpleQueue)


class _ThreadWorkers:
    """Implements `tasks.map_run.Workers`."""

    def __init__(self, clusters: InProcessClusters) -> None:
        self._clusters = clusters
        self._workers: dict[int, _Worker] = {}
        self._lock = threading.RLock()
        self._closed = False

    def open(self, work: Work, tell: Callable[[Told], None]) -> None:
        self._work = work
        self._tell = tell

    def start(self, worker: int, *, wait: bool) -> None:
        resources = self._work.resources
        if not self._clusters.capacity(resources, alive=False):
            self._tell(Broken(NeverFits(f"no cluster could ever hold a worker: it needs {dict(resources)}")))
        elif (cluster := self._clusters.take(self._work)) is not None:
            self._begin(worker, cluster)
        elif wait:
            threading.Thread(target=self._begin_with_room, args=(worker,), daemon=True).start()
        else:
            self._tell(NoRoom(worker))

    def run(self, worker: int, chunk: Chunk, items: Sequence[Any]) -> int:
        with self._lock:
            if worker in self._workers:
                self._workers[worker].chunks.put((chunk, items))
        return 0

    def close(self, *, at_once: bool) -> None:
        del at_once  # a thread cannot be ended: what it has begun goes on, and nobody hears of it
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, {}
        for each in workers.values():
            self._clusters.give_back(each.cluster, self._work)
            each.chunks.put(None)
        self._clusters.ended(self)

    def capacity(self, resources: Mapping[str, float]) -> int:
        return self._clusters.capacity(resources)

    def lose(self, cluster: str) -> None:
        """Lose all workers of a cluster."""
        with self._lock:
            lost = {number: each for number, each in self._workers.items() if each.cluster == cluster}
            for number, each in lost.items():
                del self._workers[number]
                each.chunks.put(None)
        for number in lost:
            self._tell(Lost(number, "it was killed"))

    def _begin_with_room(self, worker: int) -> None:
        cluster = self._clusters.wait_for_room(self._work, lambda: not self._closed)
        if cluster is not None:
            self._begin(worker, cluster)

    def _begin(self, number: int, cluster: str) -> None:
        worker = _Worker(cluster)
        with self._lock:
            if self._closed:
                self._clusters.give_back(cluster, self._work)
                return
            self._workers[number] = worker
        self._tell(Placed(number, cluster))
        self._tell(Ready(number))
        name = f"{cluster}-{number}"
        threading.Thread(target=self._work_off, args=(number, worker), name=name, daemon=True).start()

    def _work_off(self, number: int, worker: _Worker) -> None:
        func = self._work.func
        while (job := worker.chunks.get()) is not None:
            if self._workers.get(number) is not worker:  # lost, and so is what it had not begun
                return
            chunk, items = job
            results: list[Any] = []
            errors: dict[int, Error] = {}
            started = time.perf_counter()
            for item in items:
                try:
                    results.append(func(item))
                except (Exception, SystemExit) as error:  # noqa: BLE001 - raised where the results are read
                    errors[len(results)] = Error(error, traceback.format_exc())
                    results.append(None)
            seconds = time.perf_counter() - started
            with self._lock:
                if self._workers.get(number) is worker:
                    self._tell(Ended(number, chunk, results, errors, seconds))
