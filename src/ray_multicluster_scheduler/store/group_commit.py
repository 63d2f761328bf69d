"""Group commit: threads that write at the same moment share one commit, and so one wait for the disk.

The first caller writes at once; callers that arrive during its fsync share the next commit. No call returns
before its own data is on disk, and a single caller never waits for others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from ray_multicluster_scheduler.errors import SchedulerError, StoreError, StoreOutcomeUnknown

Request = TypeVar("Request")
Result = TypeVar("Result")

#: More requests in one transaction would keep other processes waiting for the lock.
MOST_AT_ONCE = 256


class _Ticket(Generic[Request, Result]):
    """The request of one caller, and its outcome."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.outcome: Result | BaseException | None = None
        #: Released when there is an outcome, or when this caller has to write. It is a lock, because an event
        #: costs too much when dozens of threads wake up at once.
        self.turn = threading.Lock()
        self.turn.acquire()


class GroupCommit(Generic[Request, Result]):
    """Call it from any thread. `write_all` writes and commits several requests, in order, as one.

    It returns an outcome for each request, so a refusal (`SchedulerError`) reaches its own caller only. If it
    raises, nothing was written. A `StoreError` is about the store, so every caller of the group gets it. Any
    other exception may be about one request, so each request is then written by itself.
    """

    def __init__(self, write_all: Callable[[Sequence[Request]], Sequence[Result | SchedulerError]]) -> None:
        self._write_all = write_all
        self._lock = threading.Lock()
        self._waiting: list[_Ticket[Request, Result]] = []
        #: Who writes, or has been told to. Nobody else begins to.
        self._writer: _Ticket[Request, Result] | None = None

    def __call__(self, request: Request) -> Result:
        """Return the result of this request, or raise its refusal."""
        ticket: _Ticket[Request, Result] = _Ticket(request)
        try:
            with self._lock:
                self._waiting.append(ticket)
                if self._writer is None:
                    self._writer = ticket
                must_wait = self._writer is not ticket
            if must_wait:
                ticket.turn.acquire()
            if ticket.outcome is None:
                self._write_for_all(ticket)
        finally:  # also if this thread is interrupted: the other callers must not wait for ever
            self._leave(ticket)
        if isinstance(ticket.outcome, BaseException):
            raise ticket.outcome
        assert ticket.outcome is not None
        return ticket.outcome

    def _write_for_all(self, writer: _Ticket[Request, Result]) -> None:
        with self._lock:
            group, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        outcomes: list[Result | BaseException] = [_interrupted()] * len(group)
        try:
            for place, outcome in enumerate(self._outcomes([ticket.request for ticket in group])):
                outcomes[place] = outcome
        finally:
            for ticket, outcome in zip(group, outcomes, strict=True):
                ticket.outcome = outcome
            self._leave(writer)  # first the next writer: the others only want their answers
            for ticket in group:
                ticket.turn.release()

    def _leave(self, ticket: _Ticket[Request, Result]) -> None:
        """Pass the turn to write on if this caller had it; the request of an interrupted one is dropped."""
        if ticket.outcome is not None and self._writer is not ticket:
            return
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            if self._writer is not ticket:
                return
            self._writer = self._waiting[0] if self._waiting else None
            if self._writer is not None:
                self._writer.turn.release()

    def _outcomes(self, requests: Sequence[Request]) -> Iterable[Result | BaseException]:
        try:
            return self._write_all(requests)
        except StoreError as error:
            return [error] * len(requests)
        except Exception as error:  # noqa: BLE001 - raised again in its own caller
            return [error] if len(requests) == 1 else self._one_by_one(requests)

    def _one_by_one(self, requests: Sequence[Request]) -> Iterator[Result | BaseException]:
        for request in requests:
            yield from self._outcomes([request])


def _interrupted() -> StoreError:
    return StoreOutcomeUnknown(
        "another thread was interrupted while it wrote this job too; `raymc status` with the job's id tells "
        "whether it was accepted"
    )
