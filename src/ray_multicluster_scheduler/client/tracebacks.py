"""A user's mistake ends in the user's own line: our frames behind it are not shown.

`RAY_MULTICLUSTER_TRACEBACK=full` shows them.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Generator
from contextlib import aclosing
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

from ray_multicluster_scheduler.errors import USERS_TO_MEND

TRACEBACK_VARIABLE = "RAY_MULTICLUSTER_TRACEBACK"
#: This package, and the ways in which its coroutines wait for its threads.
_OURS = {__name__.partition(".")[0], "asyncio", "concurrent"}

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
T = TypeVar("T")


def ends_at_the_caller(function: F) -> F:
    """Let the traceback of a mistake that its caller can mend end in the caller's line.

    For functions, coroutine functions and generators of both kinds; their signatures stay as they are.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _CUT:
                return await function(*args, **kwargs)

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _CUT:
                async with aclosing(function(*args, **kwargs)) as items:
                    async for item in items:
                        yield item

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _CUT:
                result = function(*args, **kwargs)
            return _iterated(result) if inspect.isgenerator(result) else result

    return cast(F, wrapper)


def each_ends_at_the_caller(kind: C) -> C:
    """Do that for every public method and property of a class, and for `await`."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name != "__await__":
            continue
        if isinstance(member, property):
            assert member.fget is not None
            setattr(kind, name, property(ends_at_the_caller(member.fget), doc=member.__doc__))
        elif inspect.isfunction(member):
            setattr(kind, name, ends_at_the_caller(member))
    return kind


def stacklevel_of_the_caller() -> int:
    """Return the level, for a warning where this is called, of the first line that is not ours."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    return level


def _iterated(items: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    with _CUT:
        return (yield from items)


class _Cut:
    """Takes off what has been noted of a traceback so far, this function's own frame too.

    An error that a `with` lets pass is not noted again for the frame that it passes. Python 3.10 goes on with
    a traceback that it has kept: one frame of ours is left there.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None or traceback is None or os.environ.get(TRACEBACK_VARIABLE) == "full":
            return
        # A TypeError of the call itself: an argument that does not exist, or one that is missing.
        is_call = isinstance(error, TypeError) and traceback.tb_next is None
        if not (is_call or isinstance(error, USERS_TO_MEND)):
            return
        traceback.tb_next = error.__traceback__ = _of_the_caller(traceback)
        _cut_reasons(error)


_CUT = _Cut()


def _of_the_caller(traceback: TracebackType) -> TracebackType | None:
    """Return the part behind our frames if the caller's own code ends it, such as a generator of jobs."""
    behind = last = _behind_ours(traceback)
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return None if last is None or _is_ours(last.tb_frame) else behind


def _behind_ours(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and _is_ours(traceback.tb_frame):
        traceback = traceback.tb_next
    return traceback


def _cut_reasons(error: BaseException) -> None:
    """Let the errors that have led to this one begin behind our frames; those of the caller stay."""
    seen = {error}
    reason = _reason(error)
    while reason is not None and reason not in seen:
        seen.add(reason)
        reason.__traceback__ = _behind_ours(reason.__traceback__)
        reason = _reason(reason)


def _reason(error: BaseException) -> BaseException | None:
    return error.__cause__ if error.__suppress_context__ else error.__context__


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS
