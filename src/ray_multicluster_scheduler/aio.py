"""The same functions for asyncio programs: `from ray_multicluster_scheduler import aio`."""

from __future__ import annotations

import asyncio
import functools
import math
import queue
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from ray_multicluster_scheduler.client import current, job_functions, result, scope, tasks, waiting
from ray_multicluster_scheduler.client import job as blocking
from ray_multicluster_scheduler.client import map as maps
from ray_multicluster_scheduler.client.job_info import JobInfo as JobInfo  # noqa: PLC0414 - the same here
from ray_multicluster_scheduler.client.tracebacks import each_ends_at_the_caller, ends_at_the_caller
from ray_multicluster_scheduler.errors import WaitTimeout
from ray_multicluster_scheduler.tasks import actor_pool as pools
from ray_multicluster_scheduler.tasks.map_run import Batch, End

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.init_ray import Connection
    from ray_multicluster_scheduler.model.states import JobState
    from ray_multicluster_scheduler.service.views import AttemptView

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")

#: Longer than `tasks.operations` needs to notice that a result is gone.
RESULT_NAP_S = 5.0


def _in_thread(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the async twin of a blocking function: it leaves the event loop free."""

    @ends_at_the_caller
    @functools.wraps(function)
    async def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        scope.is_coroutine_of_its_own()
        return await asyncio.to_thread(function, *args, **kwargs)

    return twin


@each_ends_at_the_caller
class Job(str):
    """The id of a job, and the job, for asyncio: as `ray_multicluster_scheduler.Job`, but to be awaited.

    So are its properties: `await job.status`. `await job` waits until it has succeeded.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    @property
    def status(self) -> Coroutine[Any, Any, blocking.JobStatus]:
        """See `ray_multicluster_scheduler.Job.status`, as for all below."""
        return self._ask(lambda job: job.status)

    @property
    def state(self) -> Coroutine[Any, Any, JobState]:
        """Where it is."""
        return self._ask(lambda job: job.state)

    @property
    def done(self) -> Coroutine[Any, Any, bool]:
        """Tell whether it has ended."""
        return self._ask(lambda job: job.done)

    @property
    def cluster(self) -> Coroutine[Any, Any, str | None]:
        """The cluster that it is or was on."""
        return self._ask(lambda job: job.cluster)

    @property
    def attempts(self) -> Coroutine[Any, Any, tuple[AttemptView, ...]]:
        """Its placements on clusters, oldest first."""
        return self._ask(lambda job: job.attempts)

    @property
    def submitted_at(self) -> Coroutine[Any, Any, datetime]:
        """When it was accepted."""
        return self._ask(lambda job: job.submitted_at)

    @property
    def started_at(self) -> Coroutine[Any, Any, datetime | None]:
        """When its last attempt began to run."""
        return self._ask(lambda job: job.started_at)

    @property
    def ended_at(self) -> Coroutine[Any, Any, datetime | None]:
        """When it ended."""
        return self._ask(lambda job: job.ended_at)

    async def info(self) -> JobInfo:
        """Return all that is known of it."""
        return await self._ask(lambda job: job.info())

    async def logs(self, tail: int | None = None) -> str:
        """Return its log so far, or the last lines of it."""
        return await self._ask(lambda job: job.logs(tail))

    async def follow(self) -> AsyncIterator[str]:
        """Yield the lines of its log as they are written, until it has ended."""
        begun = ""
        async for piece in job_functions.tail_job_logs_async(self):
            *whole, begun = (begun + piece).split("\n")
            for line in whole:
                yield line
        if begun:
            yield begun

    async def wait(self, timeout: float | None = None) -> Job:
        """Wait until it has succeeded, and return it; no thread waits."""
        await waiting.wait_for_all_jobs_async([self], timeout=timeout)
        return self

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until it has succeeded, and return the result that it has left; no thread waits."""
        await self.wait(timeout)
        return await self._ask(lambda job: job.result())

    def __await__(self) -> Generator[Any, None, Job]:
        """Wait like `wait`."""
        return self.wait().__await__()

    async def stop(self) -> bool:
        """Stop it, and wait until it has ended."""
        return await self._ask(lambda job: job.stop())

    async def retry(self) -> Job:
        """Run it again as a new job, which is returned."""
        return Job(await self._ask(lambda job: job.retry()))

    async def explain(self) -> blocking.JobExplanation:
        """Return why it is where it is, and what would let it start."""
        return await self._ask(lambda job: job.explain())

    async def summary(self) -> str:
        """Tell in a line where it is."""
        return await self._ask(lambda job: job.summary())

    @ends_at_the_caller
    async def _ask(self, question: Callable[[blocking.Job], T]) -> T:
        return await _in_thread(question)(blocking.Job(self))


blocking.written_as_text(Job)


@each_ends_at_the_caller
class Jobs(list[Job]):
    """Several jobs for asyncio, as `ray_multicluster_scheduler.Jobs`; `await jobs` waits for all."""

    async def counts(self) -> Mapping[str, int]:
        """Return how many are in which state."""
        return await self._ask(lambda jobs: jobs.counts())

    @property
    def failed(self) -> Coroutine[Any, Any, Jobs]:
        """Those that have failed or were stopped."""
        return self._ask(lambda jobs: Jobs(map(Job, jobs.failed)))

    @property
    def done(self) -> Coroutine[Any, Any, bool]:
        """Tell whether all have ended."""
        return self._ask(lambda jobs: jobs.done)

    async def wait(self, timeout: float | None = None, *, fail_fast: bool = True) -> Jobs:
        """Wait until all have succeeded, and return them; no thread waits."""
        await waiting.wait_for_all_jobs_async(self, timeout=timeout, fail_fast=fail_fast)
        return self

    def __await__(self) -> Generator[Any, None, Jobs]:
        """Wait like `wait`."""
        return self.wait().__await__()

    async def as_completed(self, timeout: float | None = None) -> AsyncIterator[Job]:
        """Yield each job when it has ended, the first one first, however it ended."""
        async for ended in blocking.ended(self, timeout):
            yield Job(ended)

    async def stop(self) -> int:
        """Ask for all that have not ended to be stopped; return how many those are."""
        return await self._ask(lambda jobs: jobs.stop())

    async def retry(self) -> Jobs:
        """Run those that failed or were stopped again, as new jobs, which are returned."""
        return await self._ask(lambda jobs: Jobs(map(Job, jobs.retry())))

    async def summary(self) -> str:
        """Tell how many are in which state."""
        return await self._ask(lambda jobs: jobs.summary())

    @ends_at_the_caller
    async def _ask(self, question: Callable[[blocking.Jobs], T]) -> T:
        return await _in_thread(question)(blocking.Jobs(map(blocking.Job, self)))


def _job_of(function: Callable[P, blocking.Job]) -> Callable[P, Coroutine[Any, Any, Job]]:
    """Return the async twin of a function that returns a job."""

    @ends_at_the_caller
    @functools.wraps(function)
    async def twin(*args: P.args, **kwargs: P.kwargs) -> Job:
        return Job(await _in_thread(function)(*args, **kwargs))

    return twin


def _jobs_of(function: Callable[P, blocking.Jobs]) -> Callable[P, Coroutine[Any, Any, Jobs]]:
    """Return the async twin of a function that returns several jobs."""

    @ends_at_the_caller
    @functools.wraps(function)
    async def twin(*args: P.args, **kwargs: P.kwargs) -> Jobs:
        return Jobs(map(Job, await _in_thread(function)(*args, **kwargs)))

    return twin


submit_job = _job_of(job_functions.submit_job)
submit_jobs = _jobs_of(job_functions.submit_jobs)
retry_job = _job_of(job_functions.retry_job)
job = _job_of(blocking.job)
jobs = _jobs_of(blocking.jobs)


class ActorPool(Generic[A]):
    """As `ray_multicluster_scheduler.ActorPool`, for asyncio: `async with`, `async for` and `await`."""

    def __init__(self, pool: pools.ActorPool[A]) -> None:
        self._pool = pool

    @functools.wraps(pools.ActorPool.results)
    async def map(
        self, method: str | Callable[..., Any], items: Iterable[Any], **options: Any
    ) -> AsyncIterator[Any]:
        """Call a method for every item, and yield the results."""
        results = self._pool.results(method, items, **options)
        try:
            while True:  # no thread is held for longer than a nap
                with suppress(queue.Empty):
                    future = await asyncio.to_thread(results.next, RESULT_NAP_S)
                    if future is None:
                        return
                    yield results.value(future)
        finally:
            results.close()

    def submit(self, method: str | Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Call a method once, on whichever actor is free first; await it for the result."""
        return asyncio.wrap_future(self._pool.submit(method, *args, **kwargs))

    async def broadcast(self, method: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every actor, and on those that join later; return one result for each."""
        return await asyncio.to_thread(self._pool.broadcast, method, *args, **kwargs)

    @property
    def size(self) -> int:
        """How many actors it has now; known, and so not awaited, as for all below."""
        return self._pool.size

    def clusters(self) -> Counter[str]:
        """Return how many actors it has on each cluster."""
        return self._pool.clusters()

    @property
    def repeated(self) -> int:
        """How many calls were repeated because their actor was lost."""
        return self._pool.repeated

    async def stop(self) -> None:
        """End all actors."""
        await asyncio.to_thread(self._pool.stop)

    async def __aenter__(self) -> ActorPool[A]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return repr(self._pool)


@functools.wraps(tasks.submit_actor_pool)
async def submit_actor_pool(actor_class: Callable[..., A], *args: Any, **options: Any) -> ActorPool[A]:
    """Start a pool of actors; see `ray_multicluster_scheduler.submit_actor_pool`."""
    return ActorPool(await _in_thread(tasks.submit_actor_pool)(actor_class, *args, **options))


initialize_scheduler_environment = _in_thread(current.initialize_scheduler_environment)
get_job_status = _in_thread(job_functions.get_job_status)
get_job_logs = _in_thread(job_functions.get_job_logs)
get_job_info = _in_thread(job_functions.get_job_info)
stop_job = _in_thread(job_functions.stop_job)
list_clusters = _in_thread(job_functions.list_clusters)
list_jobs = _in_thread(job_functions.list_jobs)
wait_for_all_jobs = waiting.wait_for_all_jobs_async
explain = _in_thread(job_functions.explain)
plan_job = _in_thread(job_functions.plan_job)
delete_job = _in_thread(job_functions.delete_job)
drain = _in_thread(job_functions.drain)
undrain = _in_thread(job_functions.undrain)
submit_task = _in_thread(tasks.submit_task)
submit_actor = _in_thread(tasks.submit_actor)
submit_actor_async = _in_thread(tasks.submit_actor_async)
cancel_task = _in_thread(tasks.cancel_task)
kill_actor = _in_thread(tasks.kill_actor)
get_task_status = _in_thread(tasks.get_task_status)
get_actor_status = _in_thread(tasks.get_actor_status)
get_actor_result = _in_thread(tasks.get_actor_result)
list_actors = _in_thread(tasks.list_actors)
explain_task = _in_thread(tasks.explain_task)


@ends_at_the_caller
async def init_ray(
    address: str | None = None, runtime_env_json: str | None = None, namespace: str | None = None
) -> Connection:
    """Connect this process to a Ray cluster; see `ray_multicluster_scheduler.init_ray`."""
    from ray_multicluster_scheduler.client import init_ray  # noqa: PLC0415 - imports Ray, which takes seconds

    return await asyncio.to_thread(init_ray.init_ray, address, runtime_env_json, namespace)


set_result = _in_thread(result.set_result)
MultiClusterExecutor = maps.MultiClusterExecutor
put_everywhere = maps.put_everywhere
graceful_shutdown_on_keyboard_interrupt = scope.graceful_shutdown_on_keyboard_interrupt


@ends_at_the_caller
async def tail_job_logs(submission_id: str) -> AsyncIterator[str]:
    """Yield the log of a job as it grows; see `ray_multicluster_scheduler.tail_job_logs`."""
    async for piece in job_functions.tail_job_logs_async(submission_id):
        yield piece


async def map_over_clusters(
    func: Callable[[T], R], items: Iterable[T], **options: Any
) -> AsyncGenerator[R, None]:
    """Call a function with each item, on all clusters; see `ray_multicluster_scheduler.map_over_clusters`.

    No thread waits for the results. To end it before its end, close it: `async with aclosing(...)`.
    """
    asked = maps.Map.checked(func, items, **options)
    out: asyncio.Queue[Batch | End] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def deliver(batch: Batch | End) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(out.put_nowait, batch)

    with ExitStack() as undo:
        run = await asyncio.to_thread(undo.enter_context, asked.running(deliver))
        try:
            while isinstance(batch := await out.get(), Batch):
                for result in asked.results(batch):
                    yield result
                run.taken(len(batch.results))
            if batch.error is not None:
                raise batch.error
        finally:
            await asyncio.to_thread(undo.close)


@ends_at_the_caller
async def get_task_result(task_id: str, timeout: float | None = None) -> Any:
    """Wait for a task and return its result; see `ray_multicluster_scheduler.get_task_result`."""
    ends_at = math.inf if timeout is None else time.monotonic() + timeout
    while True:  # no thread is held for longer than a nap: the program could not end before it
        nap_s = max(0.0, min(RESULT_NAP_S, ends_at - time.monotonic()))
        try:
            return await asyncio.to_thread(tasks.get_task_result, task_id, nap_s)
        except WaitTimeout:
            if time.monotonic() >= ends_at:
                raise
