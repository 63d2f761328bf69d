"""The service of a server: what `service.api.Service` promises, asked for over HTTP.

The same results and the same errors as in the server's own process. Only idempotent calls are repeated when
an answer is lost; ids chosen by the client make a submission idempotent.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any, TypeVar

from pydantic_core import to_json

from ray_multicluster_scheduler.client import transport as streams
from ray_multicluster_scheduler.client.packing import ServerPackages
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.client.transport import (
    ANSWER_TIMEOUT_S,
    Call,
    Changes,
    Events,
    Following,
    Patience,
    Tail,
    Transport,
    Tries,
    get,
    parsed,
    part,
    path_of,
    post,
    record,
)
from ray_multicluster_scheduler.environment.redact import REDACTED
from ray_multicluster_scheduler.errors import (
    DuplicateSubmission,
    JobNotFound,
    SchedulerError,
    ServerLost,
    ServerTimeout,
    ServerUnreachable,
    TooManyRequests,
)
from ray_multicluster_scheduler.model.access import NewToken, Token
from ray_multicluster_scheduler.model.cluster import TRIAL_S
from ray_multicluster_scheduler.model.job import SUBMISSION_ID, JobEvent, Lease
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.administration import AuditPage, UserView
from ray_multicluster_scheduler.service.query import EVENTS, MOST_PAGE_JOBS, SPANS, JobQuery, spans_limit
from ray_multicluster_scheduler.service.request import JobRequest, sendable
from ray_multicluster_scheduler.service.views import (
    AttemptView,
    CallerView,
    ClusterReport,
    ClusterView,
    ConfigView,
    Explanation,
    JobDetail,
    JobPage,
    JobView,
    PlanView,
    ProcessList,
    PruneView,
    ResultView,
    SessionView,
    TimelineView,
    WaitView,
)

# Tokens and the audit trail of a server, over HTTP: what `service.administration` does in its process.


T = TypeVar("T")
TOKENS, AUDIT, USERS = "/api/v1/tokens", "/api/v1/audit", "/api/v1/users"
#: Entries per page by default.
PAGE_ENTRIES = 100


class ServerAdministration:
    """The requests of an administrator to a server. The server refuses any other caller."""

    def __init__(self, server: ServerAddress, transport: Transport) -> None:
        self._server = server
        self._transport = transport

    def create_token(self, user: str, role: str, *, expires_s: float | None = None) -> NewToken:
        """Make a token. Its secret is in the answer and can never be shown again."""
        body = to_json({"user": user, "role": role, "expires_s": expires_s})
        # Not repeated: a token whose secret nobody has seen would stay valid.
        call = Call(method="POST", path=TOKENS, body=body, repeatable=False)
        return self._ask(record(NewToken), call)

    def list_tokens(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first, including revoked and expired ones."""
        return self._ask(_tokens, Call(method="GET", path=TOKENS))

    def revoke_token(self, token_id: str) -> Token:
        """Revoke a token from now on."""
        path = f"{TOKENS}/{part(arguments.text('token', token_id))}"
        return self._ask(record(Token), Call(method="DELETE", path=path))

    def users(self) -> tuple[UserView, ...]:
        """Return everybody who has a token, a quota or open jobs."""
        return self._ask(_users, Call(method="GET", path=USERS))

    def audit(
        self, *, user: str | None = None, limit: int = PAGE_ENTRIES, cursor: str | None = None
    ) -> AuditPage:
        """Return entries of the audit trail, newest first: all, or those of one user."""
        asked = {"user": user, "limit": str(limit), "cursor": cursor}
        query = [(name, value) for name, value in asked.items() if value is not None]
        return self._ask(AuditPage.model_validate, Call(method="GET", path=AUDIT, query=query))

    def _ask(self, parse: Callable[[Any], T], call: Call) -> T:
        return parsed(self._server, parse, self._transport.ask(call))


def _users(answer: Mapping[str, Any]) -> tuple[UserView, ...]:
    return tuple(map(UserView.model_validate, answer["users"]))


def _tokens(answer: Mapping[str, Any]) -> tuple[Token, ...]:
    return tuple(map(record(Token), answer["tokens"]))


# What a server is asked about clusters, its queue as a whole, and itself.


def _clusters(answer: Mapping[str, Any]) -> tuple[ClusterView, ...]:
    return tuple(map(ClusterView.model_validate, answer["clusters"]))


def _reports(answer: Mapping[str, Any]) -> tuple[ClusterReport, ...]:
    return tuple(map(ClusterReport.model_validate, answer["clusters"]))


def _waits(answer: Mapping[str, Any]) -> tuple[WaitView, ...]:
    return tuple(map(WaitView.model_validate, answer["waits"]))


def _leader(answer: Mapping[str, Any] | None) -> Lease | None:
    return None if answer is None else record(Lease)(answer)


# Query parameters of the list routes, checked as the service checks them.


def jobs_query(query: JobQuery) -> dict[str, Any]:
    """Return the filters of a list of jobs."""
    return {
        "state": None if query.states is None else [state.value for state in query.states],
        "user": arguments.text_or_none("user", query.user),
        "cluster": arguments.text_or_none("cluster", query.cluster),
        "job_id": arguments.text_or_none("job_id", query.job_id),
        "group": arguments.text_or_none("group", query.group),
        "parent": arguments.text_or_none("parent", query.parent),
        "tag": arguments.text_or_none("tag", query.tag),
        "since": query.since,
        "changed_since": query.changed_since,
        "changed_until": query.changed_until,
        "wait_reason": arguments.text_or_none("wait_reason", query.wait_reason),
        "text": arguments.text_or_none("text", query.text),
        "heads_only": query.heads_only or None,
        "head": arguments.text_or_none("head", query.head),
        "limit": query.page_limit(),
        "cursor": query.cursor,
    }


def timeline_query(since: float, until: float | None, cluster: str | None, limit: int) -> dict[str, Any]:
    """Return the span of time and the filters of a timeline."""
    return {
        "since": arguments.moment("since", since),
        "until": None if until is None else arguments.moment("until", until),
        "limit": spans_limit(limit),
        "cluster": arguments.text_or_none("cluster", cluster),
    }


#: Longest wait of one call of `news`: its answer must come within the transport's timeout.
NEWS_S = 30.0
_ALL = JobQuery()
#: Fields that a job's view shows exactly as they were requested.
_SHOWN_AS_ASKED = {"job_id", *(option.name for option in JOB_OPTIONS)}
#: A stream that ended so is taken up again.
_GONE = (ServerUnreachable, ServerLost, ServerTimeout, TooManyRequests)


class HttpService:
    """Asks a server on behalf of the caller that the token stands for."""

    def __init__(self, server: ServerAddress, *, user: str) -> None:
        self.server = server
        self._transport = Transport(server)
        #: Whose name a request has when nobody named another: the server has a name for the token.
        self._user = user

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self._transport.close()

    @property
    def packages(self) -> ServerPackages:
        """The package store. A job's directories are packed into it before the job is submitted."""
        return ServerPackages(self._transport)

    def submit(self, requests: Sequence[JobRequest]) -> tuple[JobView, ...]:
        """Accept jobs, all or none; they are on the server's disk when this returns."""
        named = [
            request if request.submission_id else request.replaced(submission_id=f"sub_{uuid.uuid4().hex}")
            for request in requests
        ]
        call = post("/jobs/batch", {"jobs": [self._body(request) for request in named]})
        tries = Tries()
        try:
            answer = self._transport.ask(call, tries)
        except DuplicateSubmission:
            if tries.answer_lost and (known := self._accepted_before(named)):
                return known
            raise
        return parsed(self.server, _jobs, answer)

    # -- clusters, the queue as a whole, and the scheduler itself

    @property
    def admin(self) -> ServerAdministration:
        """Tokens, users and the audit trail; the server refuses callers that are no administrators."""
        return ServerAdministration(self.server, self._transport)

    def clusters(self) -> tuple[ClusterView, ...]:
        """Return every configured cluster with what was last seen of it."""
        return self._ask(_clusters, get("/clusters"))

    def set_drained(self, cluster: str, *, drained: bool, reason: str = "") -> None:
        """Drain a cluster, so that it gets no new jobs, or undo that."""
        name = part(arguments.text("cluster", cluster))
        why = arguments.text("reason", reason, empty=True)
        self._transport.ask(post(f"/clusters/{name}/{'drain' if drained else 'undrain'}", {"reason": why}))

    def wait_reasons(self) -> tuple[WaitView, ...]:
        """Return for each reason how many jobs in the queue wait for it: everybody's, in numbers only."""
        return self._ask(_waits, get("/wait-reasons"))

    def processes(self) -> ProcessList:
        """Return what runs inside the clusters, ours or not, and which clusters cannot be looked at."""
        return self._ask(ProcessList.model_validate, get("/processes"))

    def run_doctor(
        self, clusters: Sequence[str] | None = None, *, timeout_s: float = TRIAL_S
    ) -> tuple[ClusterReport, ...]:
        """Examine these clusters, or all, also with a short job on each that tells what jobs get there."""
        call = post("/doctor", {"clusters": clusters, "timeout_s": timeout_s}, repeatable=False)
        return self._ask(_reports, replace(call, answer_s=timeout_s + ANSWER_TIMEOUT_S))

    def configuration(self) -> ConfigView:
        """Return the configuration as the server has loaded it, with secrets hidden."""
        return self._ask(ConfigView.model_validate, get("/config"))

    def me(self) -> CallerView:
        """Return who the caller is: whose jobs are submitted, and what that caller may do."""
        return self._ask(CallerView.model_validate, get("/me"))

    def leader(self) -> Lease | None:
        """Return who schedules now, if anybody."""
        return self._ask(_leader, get("/leader"))

    def prune(
        self, *, older_than_s: float | None = None, keep: int | None = None, dry_run: bool = False
    ) -> PruneView:
        """Remove old history by the settings or by these limits; a dry run only counts it."""
        asked = {"older_than_s": older_than_s, "keep": keep, "dry_run": dry_run}
        return self._ask(PruneView.model_validate, post("/prune", asked))

    def reload_config(self) -> dict[str, list[str]]:
        """Let the server read its clusters.yaml again; returns the names of what has changed."""
        return self._ask(dict, post("/config/reload", {}))

    def _ask(self, parse: Callable[[Any], T], call: Call) -> T:
        return parsed(self.server, parse, self._transport.ask(call))

    # -- what the calls share

    def _accepted_before(self, requests: Sequence[JobRequest]) -> tuple[JobView, ...]:
        """Return the jobs of a submission whose answer was lost; nothing: they are not from it."""
        known = self.get_many([str(request.submission_id) for request in requests])
        jobs = [known.get(str(request.submission_id)) for request in requests]
        pairs = zip(requests, jobs, strict=True)
        found = tuple(job for request, job in pairs if job is not None and self._is_of(request, job))
        return found if len(found) == len(requests) else ()

    def retry(self, submission_ids: Sequence[str]) -> tuple[JobView, ...]:
        """Accept a new job for each of these that has failed or was stopped, with the same options."""
        words = arguments.words("submission_ids", submission_ids)
        return self._ask(_jobs, post("/jobs/retry", {"submission_ids": words}, repeatable=False))

    def stop(
        self, submission_ids: Sequence[str], *, reason: str = "stopped by the user"
    ) -> tuple[JobView, ...]:
        """Ask for these jobs to be stopped, wherever they are; returns them as they are now."""
        words = arguments.words("submission_ids", submission_ids)
        why = arguments.text("reason", reason)
        return self._ask(_jobs, post("/jobs/stop", {"submission_ids": words, "reason": why}))

    def delete(self, submission_ids: Sequence[str]) -> None:
        """Forget ended jobs, all or none, here and on their clusters; their ids are free again."""
        words = arguments.words("submission_ids", submission_ids)
        tries = Tries()
        try:
            self._transport.ask(post("/jobs/delete", {"submission_ids": words}), tries)
        except JobNotFound:
            # All are gone, which a try before this one may have done: its answer was lost.
            if not tries.answer_lost or self.get_many(words):
                raise

    def find(self, word: str) -> tuple[JobView, ...]:
        """Return the jobs that a word means, oldest first: an id or its beginning, a `job_id`, a group."""
        return self._ask(_jobs, get("/jobs/find", word=arguments.text("id", word)))

    def find_each(self, words: Sequence[str]) -> tuple[JobView, ...]:
        """Return for each word the job with this id, else the newest with this `job_id`, each job once."""
        given = arguments.words("submission_ids", words)
        return self._ask(_jobs, post("/jobs/find-each", {"words": given}))

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, JobView]:
        """Return the jobs with these ids; unknown ids are left out."""
        words = arguments.words("submission_ids", submission_ids)
        return self._ask(_jobs_by_id, post("/jobs/get-many", {"submission_ids": words}))

    def detail(self, submission_id: str) -> JobDetail:
        """Return all that is known of a job, with its attempts and the log so far."""
        return self._ask(JobDetail.model_validate, get(_job(submission_id)))

    def attempts(self, submission_id: str) -> tuple[AttemptView, ...]:
        """Return the last placements of a job, oldest first. No cluster is asked."""
        return self._ask(_attempts, get(f"{_job(submission_id)}/attempts"))

    def list_jobs(self, query: JobQuery = _ALL) -> JobPage:
        """Return jobs, newest first."""
        asked = jobs_query(query)
        if asked["state"] == []:  # in a URL, none of the states would mean any
            return JobPage(jobs=(), next_cursor=None)
        return self._ask(JobPage.model_validate, get("/jobs", **asked))

    def timeline(
        self, *, since: float, until: float | None = None, cluster: str | None = None, limit: int = SPANS
    ) -> TimelineView:
        """Return the attempts that were on their clusters in this time, up to now if no end is given."""
        asked = get("/timeline", **timeline_query(since, until, cluster, limit))
        return self._ask(TimelineView.model_validate, asked)

    def counts(
        self, states: Collection[JobState], *, changed_since: float | None = None
    ) -> dict[JobState, int]:
        """Return how many jobs are in each of these states, at all or since this time or later."""
        if not states:
            return {}
        words = sorted(state.value for state in states)
        found = get("/counts", state=words, changed_since=changed_since)
        return self._ask(_counts, found)

    def queue(self, *, limit: int = MOST_PAGE_JOBS) -> tuple[JobView, ...]:
        """Return the queue: the jobs that may start now, in order, then those that wait for something."""
        return self._ask(_jobs, get("/queue", limit=limit))

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = EVENTS
    ) -> tuple[JobEvent, ...]:
        """Return what has happened, in order: to one job, or to all that this caller sees."""
        path = "/events" if submission_id is None else f"{_job(submission_id)}/events"
        return self._ask(_events, get(path, after=after, limit=limit))

    async def events_async(self, *, after: int | None = None) -> AsyncGenerator[JobEvent, None]:
        """Yield what happens, live, after this event (None: from now on), to all that this caller sees."""
        async with aclosing(self._follow_async(Events(path_of("/events/stream"), after))) as found:
            async for event in found:
                yield event

    def log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the log of an attempt (the last one by default), from its cluster while it runs."""
        return self._ask(_log, get(f"{_job(submission_id)}/logs", attempt=attempt))

    def result(self, submission_id: str) -> ResultView:
        """Return what a job that has ended has left as its result; `NoResult` says why there is none."""
        return self._ask(ResultView.model_validate, get(f"{_job(submission_id)}/result"))

    def tail(self, submission_id: str) -> Iterator[str]:
        """Yield the log as it grows, over all attempts, until the job has ended."""
        return self._follow(Tail(path_of(f"{_job(submission_id)}/logs/tail")))

    async def tail_async(self, submission_id: str) -> AsyncIterator[str]:
        """Like the blocking version, for asyncio: no thread waits."""
        async for piece in self._follow_async(Tail(path_of(f"{_job(submission_id)}/logs/tail"))):
            yield piece

    def changes(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> Iterator[Mapping[str, JobView]]:
        """Yield these jobs at once, on each change, and every `tick_s`; ends when all have ended."""
        words = arguments.words("submission_ids", submission_ids)
        return self._follow(Changes(path_of("/jobs/changes"), words, timeout_s=timeout_s, tick_s=tick_s))

    async def changes_async(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> AsyncGenerator[Mapping[str, JobView], None]:
        """Like the blocking version, for asyncio: no thread waits."""
        words = arguments.words("submission_ids", submission_ids)
        following = Changes(path_of("/jobs/changes"), words, timeout_s=timeout_s, tick_s=tick_s)
        async with aclosing(self._follow_async(following)) as found:
            async for jobs in found:
                yield jobs

    def news(self, after: int, *, timeout_s: float) -> int:
        """Wait, at most this long, until something happens after an event; return the newest event's id."""
        ends_at = time.monotonic() + timeout_s
        while True:
            left = max(0.0, ends_at - time.monotonic())
            newest = self._ask(_newest, get("/news", after=after, timeout_s=min(left, NEWS_S)))
            if newest > after or left <= NEWS_S:
                return newest

    def explain(self, submission_id: str) -> Explanation:
        """Say why a job is where it is, and what would let it start."""
        return self._ask(Explanation.model_validate, get(f"{_job(submission_id)}/explain"))

    def plan(self, request: JobRequest) -> PlanView:
        """Say what would happen to a job if it were submitted now; nothing is stored or sent."""
        return self._ask(PlanView.model_validate, post("/plan", self._body(request)))

    def sessions(self) -> tuple[SessionView, ...]:
        """Return the open Ray Client sessions, oldest first."""
        return self._ask(_sessions, get("/sessions"))

    def _body(self, request: JobRequest) -> dict[str, Any]:
        """Return a request as JSON; `InvalidRequest` names what no JSON can hold."""
        given = request.model_dump(exclude_defaults=True)
        if given["user"] == self._user:
            del given["user"]
        for name, value in given.items():
            sendable(name, value)
        return given

    def _is_of(self, request: JobRequest, job: JobView) -> bool:
        """Tell whether a job is what this request asks for, as far as that is shown: secrets are not."""
        shown = job.model_dump(include=_SHOWN_AS_ASKED)
        asked = request.model_dump(include=_SHOWN_AS_ASKED, exclude_defaults=True)
        same_command = request.entrypoint == job.entrypoint or REDACTED in job.entrypoint
        return same_command and all(shown[name] == value for name, value in asked.items())

    def _follow(self, following: Following[T]) -> Iterator[T]:
        patience = Patience()
        while True:
            error: SchedulerError | None = None
            try:
                with closing(self._transport.events(following.call())) as events:
                    for event in events:
                        patience.rest()
                        yield from following.take(self.server, event)
                        if following.over:
                            return
            except _GONE as gone:
                if not self._transport.answered:
                    raise  # a server that has never answered is not waited for
                error = gone
            time.sleep(patience.pause_s(error))

    async def _follow_async(self, following: Following[T]) -> AsyncGenerator[T, None]:
        patience = Patience()
        while True:
            error: SchedulerError | None = None
            try:
                async with aclosing(streams.events(self._transport, following.call())) as events:
                    async for event in events:
                        patience.rest()
                        for each in following.take(self.server, event):
                            yield each
                        if following.over:
                            return
            except _GONE as gone:
                if not self._transport.answered:
                    raise  # a server that has never answered is not waited for
                error = gone
            await asyncio.sleep(patience.pause_s(error))


def _job(submission_id: str) -> str:
    if not SUBMISSION_ID.fullmatch(arguments.text("submission_id", submission_id, empty=True)):
        raise JobNotFound(submission_id)  # no job can have it, and a path may not
    return f"/jobs/{part(submission_id)}"


def _jobs(answer: Mapping[str, Any]) -> tuple[JobView, ...]:
    return tuple(map(JobView.model_validate, answer["jobs"]))


def _jobs_by_id(answer: Mapping[str, Any]) -> dict[str, JobView]:
    return {name: JobView.model_validate(job) for name, job in answer["jobs"].items()}


def _events(answer: Mapping[str, Any]) -> tuple[JobEvent, ...]:
    return tuple(map(record(JobEvent), answer["events"]))


def _attempts(answer: Mapping[str, Any]) -> tuple[AttemptView, ...]:
    return tuple(map(AttemptView.model_validate, answer["attempts"]))


def _newest(answer: Mapping[str, Any]) -> int:
    return int(answer["newest"])


def _sessions(answer: Mapping[str, Any]) -> tuple[SessionView, ...]:
    return tuple(SessionView.model_validate(each) for each in answer["sessions"])


def _counts(answer: Mapping[str, Any]) -> dict[JobState, int]:
    return {JobState(word): int(count) for word, count in answer["counts"].items()}


def _log(answer: Mapping[str, Any]) -> str | None:
    logs: str | None = answer["logs"]
    return logs
