"""Streams of a server that resume where they broke off: the next request, and how events are read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pydantic_core import to_json

from ray_multicluster_scheduler.client.http_responses import parsed, refused
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.client.server_sent_events import Event
from ray_multicluster_scheduler.client.transport import Call, pauses
from ray_multicluster_scheduler.errors import SchedulerError, WaitTimeout
from ray_multicluster_scheduler.service.views import EventView, JobView

#: How long clients wait for a server that has gone away before they give up.
RECONNECT_S = 300.0
_EVENTS = {"Accept": "text/event-stream"}
T_co = TypeVar("T_co", covariant=True)


class Following(Protocol[T_co]):
    """Something that is followed on a server."""

    @property
    def over(self) -> bool:
        """Tell whether all of it is here."""

    def call(self) -> Call:
        """Return the request that begins it, or takes it up where it broke off."""

    def take(self, server: ServerAddress, event: Event) -> Iterator[T_co]:
        """Yield what an event brings; raises what it tells of."""


class Patience:
    """How long and how often a client tries to reconnect to a server."""

    def __init__(self) -> None:
        self.rest()

    def rest(self) -> None:
        """Begin anew: the server has said something."""
        self._pauses = pauses()
        self._gone_at: float | None = None

    def pause_s(self, error: SchedulerError | None) -> float:
        """Return how long to wait before the next try; raises the error when that was tried long enough."""
        now = time.monotonic()
        self._gone_at = now if self._gone_at is None else self._gone_at
        if error is not None and now - self._gone_at > RECONNECT_S:
            raise error
        return next(self._pauses)


class Changes:
    """Jobs that somebody waits for, until all have ended."""

    def __init__(
        self, path: str, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._tick_s = tick_s
        self._ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        self._open = list(dict.fromkeys(submission_ids))
        self._jobs: dict[str, JobView] = {}
        self._begun = False

    @property
    def over(self) -> bool:
        """Tell whether all of them have ended."""
        return self._begun and not self._open

    def call(self) -> Call:
        """Ask for those that have not ended, as far as is known here."""
        body = {"submission_ids": self._open, "timeout_s": self._left_s(), "tick_s": self._tick_s}
        return Call(method="POST", path=self._path, body=to_json(body), headers=_EVENTS)

    def take(self, server: ServerAddress, event: Event) -> Iterator[Mapping[str, JobView]]:
        """Yield all of the jobs after each change of one of them, and at each sign of life."""
        changed = parsed(server, _jobs, _data(server, self._path, event))
        self._begun = True
        self._jobs.update(changed)
        self._open = [each for each in self._open if each not in self._jobs or not self._jobs[each].final]
        yield dict(self._jobs)

    def _left_s(self) -> float | None:
        """Return how long to wait still; `WaitTimeout`: that is over, and the server does not answer."""
        if self._ends_at is None or not self._begun:
            return self._timeout_s
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise WaitTimeout(
                f"not all jobs have ended within {self._timeout_s:g} s, as far as the server has told; "
                "they go on: " + ", ".join(self._open),
                self._open,
                failed=[each for each, job in self._jobs.items() if job.final and job.status != "SUCCEEDED"],
            )
        return left


class Tail:
    """A job's log, until the job has ended."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._after: str | None = None
        self.over = False

    def call(self) -> Call:
        """Ask for what follows after the last piece that is here."""
        resume = {} if self._after is None else {"Last-Event-ID": self._after}
        return Call(method="GET", path=self._path, headers={**_EVENTS, **resume})

    def take(self, server: ServerAddress, event: Event) -> Iterator[str]:
        """Yield the piece that an event brings."""
        data = _data(server, self._path, event)
        self._after = event.id if event.id is not None else self._after
        self.over = event.name == "end"
        if not self.over and (piece := parsed(server, lambda told: str(told["text"]), data)):
            yield piece


class Events:
    """What happens to all jobs; it has no end."""

    over = False

    def __init__(self, path: str, after: int | None) -> None:
        self._path = path
        self._after = None if after is None else str(after)

    def call(self) -> Call:
        """Ask for what follows after the last event that is here."""
        resume = {} if self._after is None else {"Last-Event-ID": self._after}
        return Call(method="GET", path=self._path, headers={**_EVENTS, **resume})

    def take(self, server: ServerAddress, event: Event) -> Iterator[EventView]:
        """Yield the move that an event tells of."""
        view = parsed(server, EventView.model_validate, _data(server, self._path, event))
        self._after = str(view.id)
        yield view


def _data(server: ServerAddress, path: str, event: Event) -> Any:
    told = parsed(server, json.loads, event.data)
    if event.name == "error":
        raise refused(server, path, 500, told)
    return told


def _jobs(told: Mapping[str, Any]) -> dict[str, JobView]:
    return {name: JobView.model_validate(job) for name, job in told["jobs"].items()}
