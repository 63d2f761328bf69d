"""Many calls of a function over all clusters: `map_over_clusters` and `MultiClusterExecutor`."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar, overload

from ray_multicluster_scheduler.client.current import get_unified_scheduler
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.tasks.map_plan import MapPlan
from ray_multicluster_scheduler.tasks.map_run import (
    Batch,
    End,
    MapRun,
    Progress,
    Shared,
    Work,
    Workers,
    stand_in,
)

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

#: Where there is no terminal, how far a map is is logged this often.
LOG_EVERY_S = 10.0


@overload
def map_over_clusters(
    func: Callable[[T], R],
    items: Iterable[T],
    *,
    cpus: float = 1,
    gpus: float = 0,
    chunk: int | None = None,
    ordered: bool = True,
    retries: int = 1,
    on_error: Literal["raise"] = "raise",
    progress: bool = True,
    preferred_cluster: str | None = None,
    tags: Sequence[str] | None = None,
) -> Iterator[R]: ...


@overload
def map_over_clusters(
    func: Callable[[T], R],
    items: Iterable[T],
    *,
    cpus: float = 1,
    gpus: float = 0,
    chunk: int | None = None,
    ordered: bool = True,
    retries: int = 1,
    on_error: Literal["return"],
    progress: bool = True,
    preferred_cluster: str | None = None,
    tags: Sequence[str] | None = None,
) -> Iterator[R | BaseException]: ...


def map_over_clusters(
    func: Callable[[T], R],
    items: Iterable[T],
    *,
    cpus: float = 1,
    gpus: float = 0,
    chunk: int | None = None,
    ordered: bool = True,
    retries: int = 1,
    on_error: Literal["raise", "return"] = "raise",
    progress: bool = True,
    preferred_cluster: str | None = None,
    tags: Sequence[str] | None = None,
) -> Iterator[Any]:
    """Call a function with each item, on whichever clusters have room, and yield the results as they come.

    Work begins when the first result is asked for, and ends with the iterator: `break`, an error and Ctrl-C
    end all that is under way. Items are read a little ahead of the results that are taken, by a thread, so
    there may be any number of them.

    Args:
        func: The function; it and the items are pickled. What several items need is sent to each cluster only
            once by `put_everywhere`.
        items: What it is called with, one each.
        cpus: What one call claims. As many workers are started as fit on the clusters.
        gpus: The same for GPUs.
        chunk: How many items are sent together. By default it follows from how long they take.
        ordered: Results come in the order of the items; a slow item holds the later ones back. False: as
            they are ready.
        retries: How often an item is run again when its worker or its cluster was lost. What the function
            itself raises is never repeated.
        on_error: "raise" raises what the first failed item has raised; "return" yields it as a result. The
            `__cause__` of each is an `ItemFailed` with the item, its cluster and the traceback there.
        progress: Show a bar on a terminal; elsewhere log how far it is (level INFO).
        preferred_cluster: Gets workers first, while it has room.
        tags: Clusters with the same tags are favoured when home has no room.

    Raises:
        ValueError: An argument cannot be used, a call claims more than any cluster has, or a cluster cannot
            load the function.
        RuntimeError: No configuration was found, or no cluster can take it now.
    """
    return _taken_in_turn(
        Map.checked(
            func,
            items,
            cpus=cpus,
            gpus=gpus,
            chunk=chunk,
            ordered=ordered,
            retries=retries,
            on_error=on_error,
            progress=progress,
            preferred_cluster=preferred_cluster,
            tags=tags,
        )
    )


def put_everywhere(value: T) -> Shared[T]:
    """Return a handle of a value that all items share; functions read its `value`.

    It is sent to each cluster once, when a map or an executor first needs it there, and is kept there as long
    as the handle is. On one machine all workers read the same copy (of arrays: read-only).
    """
    return Shared(value)


@dataclass(frozen=True, kw_only=True)
class Map:
    """What `map_over_clusters` was asked for; nothing has begun."""

    items: Iterator[Any]
    total: int | None
    work: Work
    plan: MapPlan
    ordered: bool
    progress: bool
    raises: bool

    @classmethod
    def checked(
        cls,
        func: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        cpus: float = 1,
        gpus: float = 0,
        chunk: int | None = None,
        ordered: bool = True,
        retries: int = 1,
        on_error: str = "raise",
        progress: bool = True,
        preferred_cluster: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> Map:
        """Return it, or raise `InvalidRequest` for an argument that cannot be used."""
        if on_error not in {"raise", "return"}:
            raise InvalidRequest(f'on_error: "raise" or "return" is needed, not {on_error!r}')
        if not callable(func):
            raise InvalidRequest(f"func: a function is needed, not {func!r}")
        if not isinstance(items, Iterable):
            raise InvalidRequest(f"items: a list, a generator or the like is needed, not {items!r}")
        return cls(
            items=iter(items),
            total=len(items) if isinstance(items, Sized) else None,
            work=work_of(func, cpus, gpus, preferred_cluster, tags),
            plan=plan_of(chunk, retries),
            ordered=ordered,
            progress=progress,
            raises=on_error == "raise",
        )

    @contextmanager
    def running(self, deliver: Callable[[Batch | End], None]) -> Iterator[MapRun]:
        """Begin; in the end, whatever is still under way is ended."""
        with shown(enabled=self.progress) as show:
            run = MapRun(
                new_workers(),
                self.work,
                self.plan,
                deliver=deliver,
                ordered=self.ordered,
                show=show,
                total=self.total,
            )
            run.start()
            threading.Thread(target=_read, args=(self.items, run), name="raymc-map-read", daemon=True).start()
            try:
                yield run
            finally:
                run.close(at_once=True)

    def results(self, batch: Batch) -> Iterator[Any]:
        """Yield results, and the errors of items in their place, or raise the first one."""
        if not batch.errors:
            yield from batch.results
            return
        for position, result in enumerate(batch.results):
            error = batch.errors.get(position)
            if error is not None and self.raises:
                raise error
            yield result if error is None else error


def _taken_in_turn(asked: Map) -> Iterator[Any]:
    out: queue.SimpleQueue[Batch | End] = queue.SimpleQueue()
    with asked.running(out.put) as run:
        while isinstance(batch := out.get(), Batch):
            yield from asked.results(batch)
            run.taken(len(batch.results))
        if batch.error is not None:
            raise batch.error


def _read(items: Iterator[Any], run: MapRun) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            if not run.feed(item):
                return
    except BaseException as raised:  # noqa: BLE001 - raised after the results of the items before
        error = raised
    run.end_input(error)


def claim(cpus: float, gpus: float) -> Mapping[str, float]:
    """Return what a worker claims, which decides how many of them fit."""
    for name, amount in (("cpus", cpus), ("gpus", gpus)):
        if not isinstance(amount, (int, float)) or isinstance(amount, bool) or not amount >= 0:
            raise InvalidRequest(f"{name}: a number from 0 on is needed, not {amount!r}")
    if not cpus and not gpus:
        raise InvalidRequest("cpus and gpus are both 0: how many calls fit on a cluster follows from them")
    return {name: float(amount) for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}


def work_of(
    func: Callable[[Any], Any],
    cpus: float,
    gpus: float,
    preferred_cluster: str | None,
    tags: Sequence[str] | None,
) -> Work:
    """Return what workers are for."""
    return Work(
        func=func, resources=claim(cpus, gpus), preferred_cluster=preferred_cluster, tags=tuple(tags or ())
    )


def plan_of(chunk: int | None, retries: int, max_workers: int | None = None) -> MapPlan:
    """Return the plan that follows from these arguments."""
    return MapPlan(
        chunk=_whole("chunk", chunk, 1),
        retries=_whole("retries", retries, 0) or 0,
        max_workers=_whole("max_workers", max_workers, 1),
    )


def _whole(name: str, number: int | None, least: int) -> int | None:
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < least):
        raise InvalidRequest(f"{name}: a whole number from {least} on is needed, not {number!r}")
    return number


def new_workers() -> Workers:
    """Return workers on the clusters of this program's scheduler, or what stands in for them."""
    if (others := stand_in()) is not None:
        return others
    from ray_multicluster_scheduler.tasks.ray_workers import RayWorkers  # noqa: PLC0415 - imports Ray's parts

    def renewed() -> Any:
        get_unified_scheduler().stop()
        return get_unified_scheduler().tasks

    return RayWorkers(get_unified_scheduler().tasks, renewed)


# The executor.


class MultiClusterExecutor(Executor):
    """An executor of `concurrent.futures` whose workers are on all clusters that have room.

    Workers are started when there is something to do, and kept until `shutdown`. `submit`, `map`, `cancel`,
    `as_completed`, `wait` and `asyncio.wrap_future` work as for the executors of the standard library. An
    exception has an `ItemFailed` as its `__cause__`, which tells the cluster and the traceback there.

    Args:
        max_workers: At most so many; None: as many as fit.
        cpus: What one call claims.
        gpus: The same for GPUs.
        chunk: As for `map_over_clusters`, as all below.
        retries: See there.
        preferred_cluster: See there.
        tags: See there.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        cpus: float = 1,
        gpus: float = 0,
        chunk: int | None = None,
        retries: int = 1,
        preferred_cluster: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        self._work = work_of(_call, cpus, gpus, preferred_cluster, tags)
        self._plan = plan_of(chunk, retries, max_workers)
        self._lock = threading.Lock()
        self._run: MapRun | None = None
        self._futures: dict[int, Future[Any]] = {}
        self._submitted = 0
        self._shut = False
        self._failure: BaseException | None = None

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call on some cluster, and return its future."""
        future: Future[R] = Future()
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._failure is not None:
                raise RuntimeError("this executor cannot go on") from self._failure
            if self._run is None:
                self._run = MapRun(
                    new_workers(),
                    self._work,
                    self._plan,
                    deliver=self._deliver,
                    bounded=False,
                    sent=self._sent,
                )
                self._run.start()
            self._futures[self._submitted] = future
            self._submitted += 1
            if not self._run.feed((fn, args, kwargs)):
                raise RuntimeError("this executor cannot go on: its workers have ended")
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """End the workers when all calls have ended; `cancel_futures`: those that have not begun never do."""
        with self._lock:
            first, self._shut = not self._shut, True
            run, futures = self._run, list(self._futures.values())
        if cancel_futures:
            for future in futures:
                future.cancel()
        if run is not None:
            if first:
                run.end_input()
            if wait:
                run.close(at_once=False)

    def stop(self) -> None:
        """End everything at once; what is under way has a `CancelledError`."""
        with self._lock:
            self._shut = True
            run = self._run
        if run is not None:
            run.close(at_once=True)

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> Literal[False]:
        """Shut down; when the program is interrupted, at once."""
        if kind is not None and not issubclass(kind, Exception):
            self.stop()
        self.shutdown()
        return False

    def _sent(self, number: int, call: Any) -> Any:
        """Return what is sent for a call: nothing, if it was cancelled."""
        future = self._futures[number]
        if future.running():  # it is sent again
            return call
        return call if future.set_running_or_notify_cancel() else None

    def _deliver(self, outcome: Batch | End) -> None:
        if isinstance(outcome, End):
            self._end(outcome.error)
            return
        for position, result in enumerate(outcome.results):
            future = self._futures.pop(outcome.first + position)
            if future.cancelled():
                continue
            if (error := outcome.errors.get(position)) is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._failure = error
            left, self._futures = list(self._futures.values()), {}
        for future in left if error is not None else ():
            if not (isinstance(error, CancelledError) and future.cancel()):
                with suppress(InvalidStateError):  # cancelled by somebody else
                    future.set_exception(error)


def _call(call: tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]] | None) -> Any:
    if call is None:  # cancelled
        return None
    fn, args, kwargs = call
    return fn(*args, **kwargs)


# What a waiting person sees.


@contextmanager
def shown(*, enabled: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Yield a function that shows how far a map is: a bar on a terminal, log lines elsewhere."""
    if not enabled:
        yield None
    elif not sys.stderr.isatty():
        yield _LogLines()
    else:
        # Nobody else pays for its import.
        from rich.console import Console  # noqa: PLC0415
        from rich.markup import escape  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as Bar  # noqa: PLC0415

        columns = (
            BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
        )  # fmt: skip
        started = time.monotonic()
        with Bar(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=None)

            def show(progress: Progress) -> None:
                words = escape(summary(progress, time.monotonic() - started))
                bar.update(task, completed=progress.done, total=progress.total, description=words)

            yield show


class _LogLines:
    """Logs from time to time how far a map is, and when it has ended."""

    def __init__(self) -> None:
        self._started = self._said = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Log how far it is, unless that was done just before."""
        now = time.monotonic()
        if now - self._said >= LOG_EVERY_S or progress.done == progress.total:
            self._said = now
            of = "" if progress.total is None else f" of {progress.total:,}"
            log.info("map: %s%s items, %s", f"{progress.done:,}", of, summary(progress, now - self._started))


def summary(progress: Progress, seconds: float) -> str:
    """Write the rate, the clusters and what went wrong: `120/s on mac (2), centos (4), 3 failed`."""
    clusters = ", ".join(f"{name} ({count})" for name, count in sorted(progress.workers.items()) if count)
    words = [f"{progress.done / max(seconds, 1e-3):,.0f}/s on {clusters or 'no cluster yet'}"]
    if progress.failed:
        words.append(f"{progress.failed:,} failed")
    if progress.repeated:
        words.append(f"{progress.repeated:,} run again: {progress.trouble}")
    return ", ".join(words)
