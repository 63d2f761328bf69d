"""Waiting for jobs, with progress; the same for asyncio without a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager

from ray_multicluster_scheduler.client.current import working_scheduler
from ray_multicluster_scheduler.client.progress import progress_display
from ray_multicluster_scheduler.client.scope import stopped_at_interrupt
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.arguments import amount, words
from ray_multicluster_scheduler.service.outcome import failed, raise_if_failed
from ray_multicluster_scheduler.service.views import JobView

log = logging.getLogger(__name__)

#: Progress more often than this would be for nobody.
SHORTEST_INTERVAL_S = 0.1
#: So many ids are named in a hint.
NAMED = 3


def wait_for_all_jobs(
    submission_ids: Iterable[str],
    check_interval: float = 5,
    timeout: float | None = None,
    *,
    fail_fast: bool = True,
) -> bool:
    """Wait until all jobs have succeeded and return True, or raise as soon as one has not.

    Args:
        submission_ids: The ids, in any iterable. It reacts at once to each end, whatever `check_interval` is.
        check_interval: Paces the progress that is shown: a bar on a terminal, elsewhere log lines at INFO.
        timeout: Wait for this many seconds at most.
        fail_fast: False waits until all have ended before it raises.

    Raises:
        RuntimeError: A job failed or was stopped; the message names each with its last log lines. The others
            go on.
        TimeoutError: Not all ended within `timeout` seconds; it says which are open, and which failed
            meanwhile. They go on.
        KeyboardInterrupt: Ctrl-C. The jobs go on, unless the decorator
            `graceful_shutdown_on_keyboard_interrupt` stops them.
    """
    tick_s, timeout = _times(check_interval, timeout)
    asked = _asked(submission_ids)
    service = working_scheduler().service
    ids = list(asked)
    with _reporting_interrupts(service, ids):
        ids[:] = _ids(service, asked)
        with _watching(ids, fail_fast=fail_fast) as watch:
            for jobs in service.changes(ids, timeout_s=timeout, tick_s=tick_s):
                if watch(jobs):
                    raise_if_failed(service, jobs)
    return True


async def wait_for_all_jobs_async(
    submission_ids: Iterable[str],
    check_interval: float = 5,
    timeout: float | None = None,
    *,
    fail_fast: bool = True,
) -> bool:
    """Wait for jobs; see `ray_multicluster_scheduler.wait_for_all_jobs`."""
    tick_s, timeout = _times(check_interval, timeout)
    asked = _asked(submission_ids)
    service = (await asyncio.to_thread(working_scheduler)).service
    ids = await asyncio.to_thread(_ids, service, asked)
    changes = service.changes_async(ids, timeout_s=timeout, tick_s=tick_s)
    with _watching(ids, fail_fast=fail_fast) as watch:
        async with aclosing(changes):
            async for jobs in changes:
                if watch(jobs):
                    await asyncio.to_thread(raise_if_failed, service, jobs)
    return True


def _times(check_interval: float, timeout: float | None) -> tuple[float, float | None]:
    """Return the two lengths of time, checked: a wrong one must not surprise after hours of waiting."""
    tick_s = amount("check_interval", check_interval)
    return max(SHORTEST_INTERVAL_S, tick_s or 0.0), amount("timeout", timeout)


def _asked(submission_ids: Iterable[str]) -> tuple[str, ...]:
    if isinstance(submission_ids, str):
        raise InvalidRequest("submission_ids must be a list of ids; write [id] for a single one")
    return words(
        "submission_ids", tuple(submission_ids) if isinstance(submission_ids, Iterator) else submission_ids
    )


def _ids(service: Service, asked: Sequence[str]) -> list[str]:
    return [job.submission_id for job in service.find_each(asked)]


@contextmanager
def _watching(ids: Sequence[str], *, fail_fast: bool) -> Iterator[Callable[[Mapping[str, JobView]], bool]]:
    """Yield what is to be called with the jobs after each change; it tells whether to raise for one."""
    with progress_display(len(ids)) as show:

        def watch(jobs: Mapping[str, JobView]) -> bool:
            show(jobs)
            return bool(failed(jobs.values())) and (fail_fast or all(job.final for job in jobs.values()))

        yield watch


@contextmanager
def _reporting_interrupts(service: Service, ids: Sequence[str]) -> Iterator[None]:
    """Say at Ctrl-C which of the jobs go on, because nothing stops them."""
    try:
        yield
    except KeyboardInterrupt:
        stopped = stopped_at_interrupt()
        if kept := [each for each in dict.fromkeys(ids) if each not in stopped]:
            known = service.get_many(kept)
            _say_that_they_go_on([each for each in kept if each not in known or not known[each].final])
        raise


def _say_that_they_go_on(pending: Sequence[str]) -> None:
    if not pending:
        return
    named = " ".join(pending[:NAMED]) + (" …" if len(pending) > NAMED else "")
    log.warning(
        "interrupted: %d job(s) go on; `raymc stop %s` or stop_job(id) stops them, and "
        "@graceful_shutdown_on_keyboard_interrupt does at Ctrl-C",
        len(pending),
        named,
    )
