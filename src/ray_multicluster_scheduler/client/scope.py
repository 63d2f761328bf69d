"""Ctrl-C that reaches the clusters: stop what a function submitted, then go on ending."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast, overload

from ray_multicluster_scheduler.client.current import working_scheduler
from ray_multicluster_scheduler.errors import WaitTimeout

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

#: Ray gives a program 3 s after SIGTERM; a loaded head needs a few more to notice.
STOP_TIMEOUT_S = 15.0

_submitted: contextvars.ContextVar[tuple[list[str], ...]] = contextvars.ContextVar("submitted", default=())


class _Terminated(SystemExit):
    """SIGTERM, raised in the main thread as an exception so that it unwinds like Ctrl-C."""


def inside_a_scope() -> bool:
    """Tell whether a decorated function runs around the caller, which stops its jobs at Ctrl-C."""
    return bool(_submitted.get())


def remember(submission_ids: Sequence[str]) -> None:
    """Note jobs for every decorated function that is running around the caller."""
    for jobs in _submitted.get():
        jobs.extend(submission_ids)


@overload
def graceful_shutdown_on_keyboard_interrupt(function: Callable[P, T]) -> Callable[P, T]: ...
@overload
def graceful_shutdown_on_keyboard_interrupt() -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def graceful_shutdown_on_keyboard_interrupt(function: Callable[..., Any] | None = None) -> Any:
    """Make Ctrl-C and SIGTERM stop every job that the function submitted, on all clusters, then re-raise.

    Works while the function submits, waits or sleeps; with and without parentheses; for `async def` too.
    A second Ctrl-C does not wait for the stops.
    """
    if function is None:
        return graceful_shutdown_on_keyboard_interrupt
    if inspect.iscoroutinefunction(function):
        return _async_wrapper(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _collecting() as jobs, _sigterm_raises():
            try:
                return function(*args, **kwargs)
            except (KeyboardInterrupt, _Terminated):
                stop_and_wait(jobs)
                raise

    return wrapper


def _async_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _collecting() as jobs, _sigterm_raises():
            try:
                return await function(*args, **kwargs)
            except (KeyboardInterrupt, _Terminated, asyncio.CancelledError):
                stop_and_wait(jobs)  # blocks the loop on purpose: the program is ending
                raise

    return wrapper


def stop_and_wait(submission_ids: Sequence[str]) -> None:
    """Stop jobs wherever they are, all at once, and wait until they have ended or time is over."""
    if not submission_ids:
        return
    scheduler = working_scheduler()
    service = scheduler.service
    asked = service.stop(submission_ids, reason="stopped because the submitting program was interrupted")
    pending = [job.submission_id for job in asked if not job.final]
    if not pending:
        return
    log.warning("interrupted: stopping %d job(s) on all clusters", len(pending))
    try:
        for _ in service.changes(pending, timeout_s=STOP_TIMEOUT_S, tick_s=1.0):
            scheduler.check()
    except WaitTimeout as late:
        log.warning("still being stopped when the program ended: %s", ", ".join(late.submission_ids))


@contextmanager
def _collecting() -> Iterator[list[str]]:
    jobs: list[str] = []
    token = _submitted.set((*_submitted.get(), jobs))
    try:
        yield jobs
    finally:
        _submitted.reset(token)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into an exception while the function runs; only the main thread may do that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*_: object) -> None:
        raise _Terminated(128 + signal.SIGTERM)

    former = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, cast(Any, former))
