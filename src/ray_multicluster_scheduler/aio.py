"""The same functions for asyncio programs: `from ray_multicluster_scheduler import aio`."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ray_multicluster_scheduler.client import (
    current,
    job_functions,
    log_functions,
    scope,
    tasks,
    wait_functions,
)
from ray_multicluster_scheduler.errors import WaitTimeout

if TYPE_CHECKING:
    from ray_multicluster_scheduler.pipeline.connect import Connection

P = ParamSpec("P")
T = TypeVar("T")

#: Longer than `tasks.operations` needs to notice that a result is gone.
RESULT_NAP_S = 5.0


def _in_thread(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the async twin of a blocking function: it leaves the event loop free."""

    @functools.wraps(function)
    async def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        scope.is_coroutine_of_its_own()
        return await asyncio.to_thread(function, *args, **kwargs)

    return twin


initialize_scheduler_environment = _in_thread(current.initialize_scheduler_environment)
submit_job = _in_thread(job_functions.submit_job)
submit_jobs = _in_thread(job_functions.submit_jobs)
get_job_status = _in_thread(job_functions.get_job_status)
get_job_info = _in_thread(job_functions.get_job_info)
stop_job = _in_thread(job_functions.stop_job)
list_jobs = _in_thread(job_functions.list_jobs)
wait_for_all_jobs = wait_functions.wait_for_all_jobs_async
explain = _in_thread(job_functions.explain)
plan_job = _in_thread(job_functions.plan_job)
retry_job = _in_thread(job_functions.retry_job)
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


async def init_ray(
    address: str | None = None, runtime_env_json: str | None = None, namespace: str | None = None
) -> Connection:
    """Connect this process to a Ray cluster; see `ray_multicluster_scheduler.init_ray`."""
    from ray_multicluster_scheduler.pipeline import connect  # noqa: PLC0415 - imports Ray, which takes seconds

    return await asyncio.to_thread(connect.init_ray, address, runtime_env_json, namespace)


graceful_shutdown_on_keyboard_interrupt = scope.graceful_shutdown_on_keyboard_interrupt


async def tail_job_logs(submission_id: str) -> AsyncIterator[str]:
    """Yield the log of a job as it grows; see `ray_multicluster_scheduler.tail_job_logs`."""
    async for piece in log_functions.tail_job_logs_async(submission_id):
        yield piece


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
