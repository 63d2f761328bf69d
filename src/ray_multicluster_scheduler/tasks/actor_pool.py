"""A pool of equal actors on all clusters, as programs use it: `map`, `submit`, `broadcast`."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from ray_multicluster_scheduler.errors import InvalidRequest, SchedulerError
from ray_multicluster_scheduler.tasks.callables import GENERATOR
from ray_multicluster_scheduler.tasks.pool_driver import PoolDriver, Work, stopped
from ray_multicluster_scheduler.tasks.submitter import ActorAbout

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

#: Calls beside those that actors work on, so that none of them waits for the caller.
SPARE = 16


class ActorPool(Generic[A]):
    """Equal actors on all clusters that share work; made by `submit_actor_pool`.

    Its methods may be called from any thread. `with` ends the actors at the end of the block, and on Ctrl-C.
    """

    def __init__(self, driver: PoolDriver, about: ActorAbout) -> None:
        self._driver = driver
        self._about = about

    @overload
    def map(
        self,
        method: Callable[[A, T], R],
        items: Iterable[T],
        *,
        kwargs: Mapping[str, Any] | None = None,
        ordered: bool = True,
        retries: int = 1,
        retry_exceptions: bool | Sequence[type[BaseException]] = False,
        on_error: Literal["raise"] = "raise",
        window: int | None = None,
    ) -> Iterator[R]: ...

    @overload
    def map(
        self,
        method: Callable[[A, T], R],
        items: Iterable[T],
        *,
        kwargs: Mapping[str, Any] | None = None,
        ordered: bool = True,
        retries: int = 1,
        retry_exceptions: bool | Sequence[type[BaseException]] = False,
        on_error: Literal["return"],
        window: int | None = None,
    ) -> Iterator[R | BaseException]: ...

    @overload
    def map(
        self,
        method: str | Callable[..., Any],
        items: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
        ordered: bool = True,
        retries: int = 1,
        retry_exceptions: bool | Sequence[type[BaseException]] = False,
        on_error: Literal["raise", "return"] = "raise",
        window: int | None = None,
    ) -> Iterator[Any]: ...

    def map(
        self,
        method: str | Callable[..., Any],
        items: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
        ordered: bool = True,
        retries: int = 1,
        retry_exceptions: bool | Sequence[type[BaseException]] = False,
        on_error: Literal["raise", "return"] = "raise",
        window: int | None = None,
    ) -> Iterator[Any]:
        """Call a method for every item, and yield the results as a generator.

        Items are taken as results are taken, so both may be endless. Ctrl-C while it waits stops the pool.

        Args:
            method: Its name, or the method of the class: `"predict"` or `Infer.predict`.
            items: What it is called with, one at a time: any iterable.
            kwargs: Keyword arguments of every call.
            ordered: Yield in the order of the items; False: as they come.
            retries: How many times an item is repeated on another actor when its actor was lost.
            retry_exceptions: As in Ray: True, or the exceptions of the method that are worth a repetition.
            on_error: "return" yields the exception in the place of the result. The `__cause__` of each is an
                `ItemFailed` with the item, its cluster and the traceback there.
            window: How many items are taken before their results are yielded; by default 16 more than
                twice what the actors work on. With `ordered`, a slow item holds back the rest of it.
        """
        results = self.results(
            method,
            items,
            kwargs=kwargs,
            ordered=ordered,
            retries=retries,
            retry_exceptions=retry_exceptions,
            on_error=on_error,
            window=window,
        )
        return self._yielded(results)

    @overload
    def submit(
        self, method: Callable[Concatenate[A, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]: ...

    @overload
    def submit(self, method: str, *args: Any, **kwargs: Any) -> Future[Any]: ...

    def submit(self, method: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a method once, on whichever actor is free first.

        The future can be cancelled while it waits for an actor. The call is repeated once if its actor
        is lost.
        """
        self._check_open()
        return self._add(Work(self._method(method), args, kwargs), 1)

    def broadcast(self, method: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every actor, wait, and return one result for each.

        Actors that join later are called too before they get work, in the order of the broadcasts: up to 100
        are remembered, and one more is refused. An actor that is lost meanwhile has no result here. Where one
        raises an exception, it is raised here, and the call is not remembered.
        """
        self._check_open()
        work = Work(self._method(method), args, kwargs)
        works = self._unless_interrupted(self._driver.broadcast(work).result)
        self._unless_interrupted(lambda: [each.future.exception() for each in works])
        problems = [each.future.exception() for each in works]
        here = [
            (each, problem)
            for each, problem in zip(works, problems, strict=True)
            if problem is None or self._driver.is_alive_after(problem)
        ]
        for _, problem in here:
            if problem is not None:
                work.future.cancel()  # no actor that joins later has to fail with it too
                raise problem
        return [each.future.result() for each, _ in here]

    @property
    def size(self) -> int:
        """How many actors it has now, those that are starting included."""
        return sum(self.clusters().values())

    def clusters(self) -> Counter[str]:
        """Return how many actors it has on each cluster."""
        return self._driver.clusters()

    @property
    def repeated(self) -> int:
        """How many calls were repeated because their actor was lost."""
        return self._driver.counts()[2]

    def stop(self) -> None:
        """End all actors. Calls that wait are cancelled; those under way end with an error."""
        self._driver.stop()

    def __enter__(self) -> ActorPool[A]:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        if self._driver.is_over:
            return f"<ActorPool {self._about.class_name}: stopped>"
        places = ", ".join(f"{name} {number}" for name, number in sorted(self.clusters().items()))
        running, waiting, _ = self._driver.counts()
        actors = f"{self.size} actor{'' if self.size == 1 else 's'}"
        return (
            f"<ActorPool {self._about.class_name}: {actors}{f' ({places})' if places else ''}, "
            f"{running} calls running, {waiting} waiting>"
        )

    def _method(self, method: str | Callable[..., Any]) -> str:
        known = self._about.methods
        name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
        if name not in known:
            listed = ", ".join(sorted(each for each in known if not each.startswith("_"))) or "none"
            raise InvalidRequest(f"{self._about.class_name} has no method {name!r}; it has: {listed}")
        if known[name] == GENERATOR:
            raise InvalidRequest(f"{name!r} yields its results, which a pool does not collect: return a list")
        return name

    def _check_open(self) -> None:
        if self._driver.is_stopped:
            raise stopped()
        if self._driver.problem is not None:
            raise SchedulerError(
                f"this pool has ended: {self._driver.problem}; make a new one with submit_actor_pool"
            ) from self._driver.problem

    def _add(self, work: Work, retries: int) -> Future[Any]:
        self._driver.add(work, retries)
        return work.future

    def _window(self) -> int:
        return 2 * self.size * self._about.max_concurrency + SPARE

    def results(
        self,
        method: str | Callable[..., Any],
        items: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
        ordered: bool = True,
        retries: int = 1,
        retry_exceptions: bool | Sequence[type[BaseException]] = False,
        on_error: str = "raise",
        window: int | None = None,
    ) -> Results:
        """Return what `map` yields, to be waited for in another way; the arguments are those of `map`."""
        self._check_open()
        if on_error not in {"raise", "return"}:
            raise InvalidRequest(f"on_error must be 'raise' or 'return', not {on_error!r}")
        if window is not None and window < 1:
            raise InvalidRequest(f"window must be 1 or more, not {window!r}")
        if not isinstance(retries, int) or retries < 0:
            raise InvalidRequest(f"retries must be 0 or more, not {retries!r}")
        name, again = self._method(method), _exceptions(retry_exceptions)

        def submit(item: Any, number: int) -> Future[Any]:
            return self._add(Work(name, (item,), kwargs or {}, again, number), retries)

        return Results(
            iter(items),
            submit,
            lambda: window or self._window(),
            ordered=ordered,
            raises=on_error == "raise",
        )

    def _yielded(self, results: Results) -> Iterator[Any]:
        try:
            while (future := self._unless_interrupted(results.next)) is not None:
                yield results.value(future)
        finally:
            results.close()

    def _unless_interrupted(self, wait: Callable[[], R]) -> R:
        try:
            return wait()
        except KeyboardInterrupt:
            self.stop()
            raise


class Results:
    """The results of items, of which no more are taken than a window holds."""

    def __init__(
        self,
        items: Iterator[Any],
        submit: Callable[[Any, int], Future[Any]],
        window: Callable[[], int],
        *,
        ordered: bool,
        raises: bool,
    ) -> None:
        self._raises = raises
        self._items = items
        self._submit = submit
        self._window = window
        self._ordered = ordered
        self._more = True
        self._taken = self._given = 0
        self._open: dict[int, Future[Any]] = {}
        #: Numbers in the order in which they ended; filled by whichever thread ends a call.
        self._news: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._ended: dict[int, Future[Any]] = {}

    def next(self, timeout_s: float | None = None) -> Future[Any] | None:
        """Return the next one, which has ended, or None after the last; `queue.Empty` after the timeout.

        One item is taken for each result that is given: a slow input delays a result by one item at most.
        """
        took = False
        while True:
            while not self._news.empty():
                self._note(self._news.get())
            is_ready = self._given in self._ended if self._ordered else bool(self._ended)
            if self._more and self._taken - self._given < self._window() and not (is_ready and took):
                self._take()
                took = True
            elif is_ready:
                number = self._given if self._ordered else next(iter(self._ended))
                self._given += 1
                return self._ended.pop(number)
            elif self._given == self._taken:
                return None
            else:
                self._note(self._news.get(timeout=timeout_s))

    def value(self, future: Future[Any]) -> Any:
        """Return the result of a call that has ended; its exception is returned or raised, as was asked."""
        error = future.exception()
        if error is not None and not self._raises:
            return error
        return future.result()

    def close(self) -> None:
        """Cancel what waits for an actor; what is under way ends there, and nobody gets its result."""
        for future in tuple(self._open.values()):
            future.cancel()

    def _take(self) -> None:
        try:
            item = next(self._items)
        except StopIteration:
            self._more = False
            return
        number, self._taken = self._taken, self._taken + 1
        self._open[number] = self._submit(item, number)
        self._open[number].add_done_callback(lambda _: self._news.put(number))

    def _note(self, number: int) -> None:
        self._ended[number] = self._open.pop(number)


def _exceptions(wanted: bool | Sequence[type[BaseException]]) -> tuple[type[BaseException], ...]:  # noqa: FBT001
    if isinstance(wanted, bool):
        return (Exception,) if wanted else ()
    if isinstance(wanted, type) or not all(
        isinstance(each, type) and issubclass(each, BaseException) for each in wanted
    ):
        raise InvalidRequest(f"retry_exceptions must be True, False or a list of exceptions, not {wanted!r}")
    return tuple(wanted)
