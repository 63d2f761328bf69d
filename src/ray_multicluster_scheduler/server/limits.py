"""How often one user may ask, and how much of that at once: nobody can take the server away from others."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Scope

from ray_multicluster_scheduler.config.schema import ServerSettings
from ray_multicluster_scheduler.server.refusals import refused
from ray_multicluster_scheduler.service.caller import Caller

CHANGE, LIST, LOG = "changes", "lists", "logs"
#: A bucket holds what fills it in this time: a user may come with a burst.
BURST_S = 10.0
#: Users with a bucket of their own. The least recently seen user is dropped, with a full bucket.
MOST_USERS = 10_000

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
LISTS = frozenset(
    {
        "/api/jobs",
        "/api/jobs/",
        "/api/v1/jobs",
        "/api/v1/jobs/find",
        "/api/v1/jobs/find-each",
        "/api/v1/jobs/get-many",
        "/api/v1/jobs/changes",
        "/api/v1/plan",
        "/api/v1/timeline",
        "/api/v1/counts",
        "/api/v1/queue",
        "/api/v1/events",
        "/api/v1/audit",
        "/api/v1/users",
        "/api/v1/wait-reasons",
        "/api/v1/processes",
    }
)
_LOGS = ("/logs", "/logs/tail")
#: One of our jobs, by its id; and why it is where it is, which reads the whole queue.
_JOB = "/api/v1/jobs/"
_EXPLAIN = "/explain"


class Limits:
    """What each user has asked for lately, and has open now."""

    def __init__(self, settings: ServerSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = {
            CHANGE: settings.changes_per_second,
            LIST: settings.lists_per_second,
            LOG: settings.logs_per_second,
        }
        self._most_open = settings.open_requests_per_user
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        self._open: dict[str, int] = {}

    def enter(self, user: str, scope: Scope) -> Response | None:
        """Count a request of a user until `leave`; or return the refusal that says when to try again."""
        wait_s = self._wait_s(user, kind_of(scope))
        if wait_s > 0:
            sentence = f"{user!r} asks more often than this server allows; try again in {wait_s} s"
        elif self._open.get(user, 0) >= self._most_open:
            wait_s = 1
            sentence = f"{user!r} has {self._most_open} requests and streams open, which is the most at once"
        else:
            self._open[user] = self._open.get(user, 0) + 1
            return None
        return refused(scope, 429, "TooManyRequests", sentence, {"Retry-After": str(wait_s)})

    def leave(self, user: str) -> None:
        """Tell that a request of a user has ended."""
        self._open[user] -= 1
        if not self._open[user]:
            del self._open[user]

    def _wait_s(self, user: str, kind: str | None) -> int:
        """Take one from the user's bucket; return 0, or after how many seconds there is one."""
        if kind is None:
            return 0
        rate, now = self._rates[kind], self._clock()
        full = max(1.0, rate * BURST_S)
        left, at = self._buckets.pop((user, kind), (full, now))
        left = min(full, left + (now - at) * rate)
        taken = left >= 1.0
        self._buckets[user, kind] = left - 1.0 if taken else left, now
        if len(self._buckets) > MOST_USERS:
            self._buckets.popitem(last=False)
        return 0 if taken else max(1, math.ceil((1.0 - left) / rate))


def limited_user(scope: Scope) -> str | None:
    """Return the user of a request; None: not limited. Callers that need no token are all one user."""
    caller: Caller | None = scope["state"].get("caller")
    return None if caller is None or caller.token_id is None else caller.user


def kind_of(scope: Scope) -> str | None:
    """Return by which rate a request counts; None: by none."""
    path: str = scope["path"]
    if path in LISTS and (path not in {"/api/jobs", "/api/jobs/", "/api/v1/jobs"} or _reads(scope)):
        return LIST
    if path.endswith(_LOGS):
        return LOG
    if path.startswith(_JOB) and _reads(scope):
        if path.endswith(_EXPLAIN):
            return LIST
        if "/" not in path.removeprefix(_JOB):  # with the log so far, which may come from its cluster
            return LOG
    return None if _reads(scope) else CHANGE


def _reads(scope: Scope) -> bool:
    return scope["type"] == "websocket" or scope["method"] in _READS
