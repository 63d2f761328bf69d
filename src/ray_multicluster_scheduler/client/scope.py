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
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar, overload

from ray_multicluster_scheduler.client.current import working_scheduler
from ray_multicluster_scheduler.errors import SchedulerError, WaitTimeout

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

#: Ray gives a program 3 s after SIGTERM; a loaded head needs a few more to notice.
STOP_TIMEOUT_S = 15.0
_REASON = "stopped because the submitting program was interrupted"


class _Scope:
    """A decorated function that runs, and the jobs that it stops when it is interrupted."""

    def __init__(self, *, is_coroutine: bool) -> None:
        self.is_coroutine = is_coroutine
        self.jobs: list[str] = []
        #: Perhaps submitted for it, perhaps for another coroutine: stopped only when the program ends.
        self.guessed: list[str] = []
        #: Ctrl-C or SIGTERM came, so a cancellation is the end of the program.
        self.is_ending = False
        #: Its jobs are being stopped, or were: what a thread submits for it from now on is stopped as well.
        self.is_interrupted = False
        #: Submissions of its threads whose jobs are not known yet.
        self.under_way = 0


#: The decorated functions around the caller. None: unknown, because threads do not inherit the context of the
#: function that started them. Tasks of asyncio and `asyncio.to_thread` do.
_around: contextvars.ContextVar[tuple[_Scope, ...] | None] = contextvars.ContextVar("around", default=None)
#: The decorated functions that run in the main thread, which is the one that signals interrupt.
_in_main_thread: list[_Scope] = []
#: The handlers of signals that ours have replaced.
_former: dict[signal.Signals, Any] = {}
#: Notified when a submission is over.
_submitted = threading.Condition()


class _Terminated(SystemExit):
    """SIGTERM, raised in the main thread as an exception so that it unwinds like Ctrl-C."""


@contextmanager
def remembered() -> Iterator[list[str]]:
    """Note the ids that the caller adds, for every decorated function that the jobs are submitted in.

    Until the block ends the submission is under way: a function that is interrupted waits for it.
    """
    around = _around.get()
    owners = list(around or ())
    guessing: list[_Scope] = []
    if threading.current_thread() is not threading.main_thread():
        for scope in tuple(_in_main_thread):
            # While a plain function runs there, other threads work for it. Coroutines take turns.
            if not scope.is_coroutine and scope not in owners:
                owners.append(scope)
            elif around is None:
                guessing.append(scope)
    ids: list[str] = []
    _count(owners, 1)
    try:
        yield ids
        for scope in guessing:
            scope.guessed.extend(ids)
        for scope in owners:
            scope.jobs.extend(ids)
        if any(scope.is_interrupted for scope in owners):
            working_scheduler().service.stop(ids, reason=_REASON)
    finally:
        _count(owners, -1)


def _count(scopes: Sequence[_Scope], by: int) -> None:
    with _submitted:
        for scope in scopes:
            scope.under_way += by
        _submitted.notify_all()


def is_coroutine_of_its_own() -> None:
    """Note that the caller is a coroutine: the decorated functions around it are all that it works for."""
    if _around.get() is None:
        _around.set(())


def stopped_at_interrupt() -> set[str]:
    """Return the jobs that the decorated functions around the caller stop at Ctrl-C."""
    return {each for scope in _around.get() or () for each in (*scope.jobs, *scope.guessed)}


@overload
def graceful_shutdown_on_keyboard_interrupt(function: Callable[P, T]) -> Callable[P, T]: ...
@overload
def graceful_shutdown_on_keyboard_interrupt() -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def graceful_shutdown_on_keyboard_interrupt(function: Callable[..., Any] | None = None) -> Any:
    """Make Ctrl-C and SIGTERM stop every job that the function submitted, on all clusters, then re-raise.

    Works while the function submits, waits or sleeps; with and without parentheses; for `async def` too.
    A second Ctrl-C does not wait for the stops. Signals interrupt the main thread only, so decorate what runs
    there: while it runs, the jobs that other threads submit belong to it, whoever started them.

    A coroutine that is cancelled stops its own jobs, and no other coroutine waits meanwhile. Its own are
    those that it and its tasks submitted, with `aio` or `asyncio.to_thread`. Those of other threads may be
    another coroutine's: they are stopped at Ctrl-C and SIGTERM only.
    """
    if function is None:
        return graceful_shutdown_on_keyboard_interrupt
    if inspect.iscoroutinefunction(function):
        return _async_wrapper(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _opened(is_coroutine=False) as scope:
            try:
                return function(*args, **kwargs)
            except (KeyboardInterrupt, _Terminated):
                scope.is_interrupted = True
                stop_and_wait(tuple(scope.jobs))
                if scope.under_way:  # a thread is submitting, which ends with the program
                    with _submitted:
                        _submitted.wait_for(lambda: not scope.under_way, STOP_TIMEOUT_S)
                stop_and_wait(tuple(scope.jobs))
                raise

    return wrapper


def _async_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _opened(is_coroutine=True) as scope:
            try:
                return await function(*args, **kwargs)
            except (KeyboardInterrupt, _Terminated, asyncio.CancelledError):
                scope.is_interrupted = True
                await _stopped([*scope.jobs, *(scope.guessed if scope.is_ending else ())])
                raise

    return wrapper


async def _stopped(submission_ids: Sequence[str]) -> None:
    """Call `stop_and_wait` in a thread. A second interrupt must not wait for it, so it is none of a pool."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def stop() -> None:
        try:
            stop_and_wait(submission_ids)
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=stop, name="stop jobs", daemon=True).start()
    await done.wait()


def stop_and_wait(submission_ids: Sequence[str]) -> None:
    """Stop jobs wherever they are, all at once, and wait until they have ended or time is over."""
    if not submission_ids:
        return
    try:
        service = working_scheduler().service
        known = service.get_many(submission_ids)  # what was deleted meanwhile needs no stop
        pending = [each for each, job in known.items() if not job.final]
        if not pending:
            return
        log.warning("interrupted: stopping %d job(s) on all clusters", len(pending))
        service.stop(pending, reason=_REASON)
        for _ in service.changes(pending, timeout_s=STOP_TIMEOUT_S, tick_s=1.0):
            pass
    except WaitTimeout as late:
        log.warning("still being stopped when the program ended: %s", ", ".join(late.submission_ids))
    except SchedulerError as problem:
        log.warning("the jobs of the interrupted function could not be stopped: %s", problem)


@contextmanager
def _opened(*, is_coroutine: bool) -> Iterator[_Scope]:
    scope = _Scope(is_coroutine=is_coroutine)
    token = _around.set((*(_around.get() or ()), scope))
    in_main_thread = threading.current_thread() is threading.main_thread()
    try:
        if in_main_thread:
            _in_main_thread.append(scope)
            _handle_signals()
        yield scope
    finally:
        _around.reset(token)
        if in_main_thread:
            _in_main_thread.remove(scope)
            _handle_signals()


def _handle_signals() -> None:
    """Handle the signals as the functions in the main thread need it; with the last of them, as before.

    SIGTERM becomes an exception. Ctrl-C is one; only coroutines, which it cancels, cannot tell it from
    another cancellation, so it is noted for them.
    """
    coroutines = any(scope.is_coroutine for scope in _in_main_thread)
    for number, handler, needed in (
        (signal.SIGTERM, _terminate, bool(_in_main_thread)),
        (signal.SIGINT, _note_interrupt, coroutines and callable(signal.getsignal(signal.SIGINT))),
    ):
        if needed and number not in _former:
            _former[number] = signal.signal(number, handler)
        elif not needed and number in _former:
            former = _former.pop(number)
            if signal.getsignal(number) is handler and former is not None:
                signal.signal(number, former)


def _note_interrupt(number: int, frame: Any) -> None:
    for scope in _in_main_thread:
        scope.is_ending = True
    _former.get(signal.SIGINT, signal.default_int_handler)(number, frame)


def _terminate(*_: object) -> None:
    for scope in _in_main_thread:
        scope.is_ending = True
    raise _Terminated(128 + signal.SIGTERM)
