"""A job's way as a trace: one span for the whole of it, and one for each state that it was in.

Made from the stored events when the job has ended, so that nothing is measured on the way. Programs begin and
end when their clusters say so, which may be long before the event of it was written. All ids are derived from
the job's own, so a second export, or one from another server, gives the same trace.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState
from ray_multicluster_scheduler.service.views import AttemptView, EventView, JobView

#: Where a job's metadata has it, it is a part of that trace (https://www.w3.org/TR/trace-context/).
TRACEPARENT = "traceparent"
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
#: What goes on while a job is in a state.
STEPS = {
    JobState.QUEUED: "place",
    JobState.PLACED: "send",
    JobState.SUBMITTED: "start",
    JobState.RUNNING: "run",
    JobState.UNREACHABLE: "unreachable",
    JobState.LOST: "lost",
}
WHOLE = "job"
#: What is said of a run that had ended when it was noticed.
RAN_UNSEEN = "it had ended when that was noticed"
_STARTS = frozenset({JobState.PLACED, JobState.SUBMITTED})
_BAD = frozenset({JobState.FAILED, JobState.LOST, JobState.UNREACHABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened within a span."""

    name: str
    at: float
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of a job's way. Times are seconds since the epoch."""

    name: str
    span_id: int
    begun: float
    ended: float
    #: Why it ended badly; empty: it did not.
    problem: str = ""
    attempt: int | None = None
    cluster: str | None = None
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """One job's way, or the part of another trace that it is."""

    trace_id: int
    #: The span of somebody else that the job is a part of.
    parent_id: int | None
    sampled: bool
    job: JobView
    whole: Span
    steps: tuple[Span, ...] = field(default=())


def trace_of(
    job: JobView, events: Sequence[EventView], attempts: Sequence[AttemptView] = (), *, store_id: str
) -> JobTrace | None:
    """Return the trace of a job that has ended; None where its beginning or its end is not known."""
    if not events or events[0].old is not None or events[-1].new not in FINAL:
        return None
    given = _TRACEPARENT.fullmatch(job.metadata.get(TRACEPARENT, ""))
    trace_id = int(given[1], 16) if given else 0
    parent_id = int(given[2], 16) if given else 0
    if not (trace_id and parent_id):  # all zeros mean that there is none
        trace_id, parent_id = _number(16, store_id, job.submission_id), 0
    events = _with_true_times(events, {attempt.number: attempt for attempt in attempts})
    first, last = events[0], events[-1]
    end = Moment(name="ended", at=last.at, says=last.reason)
    return JobTrace(
        trace_id=trace_id,
        parent_id=parent_id or None,
        sampled=not (given and parent_id) or bool(int(given[3], 16) & 1),
        job=job,
        whole=Span(
            name=WHOLE,
            span_id=_span_id(trace_id, job, WHOLE),
            begun=first.at,
            ended=last.at,
            problem=last.reason if last.new is JobState.FAILED else "",
            moments=(Moment(name="accepted", at=first.at, says=first.reason), end),
        ),
        steps=tuple(_steps(trace_id, job, events)),
    )


def _with_true_times(events: Sequence[EventView], attempts: Mapping[int, AttemptView]) -> Sequence[EventView]:
    """Return the events at the times of what they tell of, in order."""
    told = [each for event in events for each in _as_it_was(event, attempts.get(event.attempt))]
    latest = told[-1].at
    for index in reversed(range(len(told))):  # nothing was noticed after the next thing had happened
        latest = min(latest, told[index].at)
        told[index] = told[index].model_copy(update={"at": latest})
    return told


def _as_it_was(event: EventView, attempt: AttemptView | None) -> list[EventView]:
    """Return an event at the time of what it tells of. A run that nobody saw begin gets an event, too."""
    if attempt is None:
        return [event]
    begins = event.old in _STARTS and attempt.started_at is not None
    ends = event.old in LIVE and event.new not in LIVE and attempt.ended_at is not None
    if begins and event.new is JobState.RUNNING:
        return [event.model_copy(update={"at": attempt.started_at})]
    if not ends:
        return [event]
    end = event.model_copy(update={"at": attempt.ended_at})
    if not begins:
        return [end]
    began = {"at": attempt.started_at, "new": JobState.RUNNING, "reason": RAN_UNSEEN}
    return [event.model_copy(update=began), end.model_copy(update={"old": JobState.RUNNING})]


def _steps(trace_id: int, job: JobView, events: Sequence[EventView]) -> list[Span]:
    """Return one span for each stay in a state; what was noted meanwhile happened within it."""
    steps: list[Span] = []
    begun, notes = events[0], list[Moment]()
    for event in events[1:]:
        if event.old is event.new:
            notes.append(Moment(name="noted", at=event.at, says=event.reason))
            continue
        waits = begun.new is JobState.QUEUED
        steps.append(
            Span(
                name=STEPS[begun.new],
                span_id=_span_id(trace_id, job, len(steps)),
                begun=begun.at,
                ended=event.at,
                problem=event.reason if event.new in _BAD or (event.new is JobState.QUEUED) else "",
                # The wait in the queue belongs to the attempt that it ends with.
                attempt=event.attempt if waits else begun.attempt,
                cluster=event.cluster if waits else begun.cluster,
                moments=tuple(notes),
            )
        )
        begun, notes = event, []
    return steps


def _span_id(trace_id: int, job: JobView, part: str | int) -> int:
    return _number(8, f"{trace_id:032x}", job.submission_id, str(part))


def _number(size: int, *words: str) -> int:
    """Return a non-zero number of this many bytes, derived from the words."""
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return int.from_bytes(digest[:size], "big") or 1
