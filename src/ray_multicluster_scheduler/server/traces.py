"""OpenTelemetry traces of jobs (extra `traces`): off unless the environment says where they go.

The variables are OpenTelemetry's own: `OTEL_EXPORTER_OTLP_ENDPOINT` and its relatives.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.config.installed import how_to_install
from ray_multicluster_scheduler.model.job import JobEvent, PastMove
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.views import AttemptView, JobView

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.util.types import AttributeValue


# A job's way as a trace: one span for the whole of it, and one for each state that it was in.
#
# Made from the stored events when the job has ended, so that nothing is measured on the way. Programs begin
# and end when their clusters say so, which may be long before the event of it was written. All ids are
# derived from the job's own, so a second export, or one from another server, gives the same trace.


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
    job: JobView, events: Sequence[JobEvent], attempts: Sequence[AttemptView] = (), *, store_id: str
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


def _with_true_times(events: Sequence[JobEvent], attempts: Mapping[int, AttemptView]) -> Sequence[JobEvent]:
    """Return the events at the times of what they tell of, in order."""
    told = [each for event in events for each in _as_it_was(event, attempts.get(event.attempt))]
    latest = told[-1].at
    for index in reversed(range(len(told))):  # nothing was noticed after the next thing had happened
        latest = min(latest, told[index].at)
        told[index] = replace(told[index], at=latest)
    return told


def _as_it_was(event: JobEvent, attempt: AttemptView | None) -> list[JobEvent]:
    """Return an event at the time of what it tells of. A run that nobody saw begin gets an event, too."""
    if attempt is None:
        return [event]
    began_at = attempt.started_at if event.old in _STARTS else None
    ended_at = attempt.ended_at if event.old in LIVE and event.new not in LIVE else None
    if began_at is not None and event.new is JobState.RUNNING:
        return [replace(event, at=began_at)]
    if ended_at is None:
        return [event]
    end = replace(event, at=ended_at)
    if began_at is None:
        return [end]
    began = replace(event, at=began_at, new=JobState.RUNNING, reason=RAN_UNSEEN)
    return [began, replace(end, old=JobState.RUNNING)]


def _steps(trace_id: int, job: JobView, events: Sequence[JobEvent]) -> list[Span]:
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


log = logging.getLogger(__name__)

#: Either of them turns traces on.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
#: Events of one job that are looked at: a job that was tried more often has no trace.
MOST_EVENTS = 1_000
SERVICE_NAME = "raymc"
_SCOPE = "ray_multicluster_scheduler"


class Traces:
    """Exports the trace of each ended job that it is called with."""

    def __init__(self, scheduler: Scheduler, exporter: SpanProcessor) -> None:
        self._scheduler = scheduler
        self._exporter = exporter
        self._resource = _resource()

    def close(self) -> None:
        """Export what is left, and end."""
        self._exporter.shutdown()

    def export(self, moves: Sequence[PastMove]) -> None:
        """Export the traces of the jobs that have ended with these moves."""
        ended = [move.submission_id for move in moves if move.new in FINAL]
        service, store_id = self._scheduler.service, self._scheduler.store_id
        for submission_id, job in service.get_many(ended).items():
            events = service.events(submission_id, limit=MOST_EVENTS)
            trace = trace_of(job, events, service.attempts(submission_id), store_id=store_id)
            if trace is not None and trace.sampled:
                for span in spans_of(trace, self._resource):
                    self._exporter.on_end(span)


def open_traces(scheduler: Scheduler, environ: Mapping[str, str]) -> Traces | None:
    """Return what exports traces, or None where nothing says where to."""
    if not any(environ.get(name) for name in ENDPOINTS) or _is_off(environ):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra
    except ImportError as missing:
        log.warning(
            "%s is set, but traces need more packages (%s): %s",
            next(name for name in ENDPOINTS if environ.get(name)),
            missing,
            how_to_install("traces"),
        )
        return None
    return Traces(scheduler, BatchSpanProcessor(OTLPSpanExporter()))


def _is_off(environ: Mapping[str, str]) -> bool:
    return (
        environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environ.get("OTEL_TRACES_EXPORTER") == "none"
    )


def _resource() -> Resource:
    """Return the OpenTelemetry resource; the environment's service name wins over ours."""
    from opentelemetry.sdk import resources  # noqa: PLC0415 - an extra

    ours = resources.Resource.create({resources.SERVICE_NAME: SERVICE_NAME})
    return ours.merge(resources.OTELResourceDetector().detect())


def spans_of(trace: JobTrace, resource: Resource) -> list[ReadableSpan]:
    """Return a trace in OpenTelemetry's own records."""
    from opentelemetry.sdk.trace import Event, ReadableSpan  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415 - an extra
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415 - an extra
    from opentelemetry.trace.status import Status, StatusCode  # noqa: PLC0415 - an extra

    def context(span_id: int | None, *, remote: bool = False) -> SpanContext | None:
        if span_id is None:
            return None
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(trace.trace_id, span_id, is_remote=remote, trace_flags=flags)

    def event(moment: Moment) -> Event:
        return Event(moment.name, {"raymc.reason": moment.says}, timestamp=_nanoseconds(moment.at))

    def span(part: Span, parent: SpanContext | None, told: Mapping[str, AttributeValue]) -> ReadableSpan:
        return ReadableSpan(
            part.name,
            context=context(part.span_id),
            parent=parent,
            resource=resource,
            attributes={"raymc.submission_id": trace.job.submission_id, **told},
            events=[event(moment) for moment in part.moments],
            status=Status(StatusCode.ERROR, part.problem) if part.problem else Status(StatusCode.OK),
            start_time=_nanoseconds(part.begun),
            end_time=_nanoseconds(part.ended),
            instrumentation_scope=InstrumentationScope(_SCOPE),
        )

    job, inside = trace.job, context(trace.whole.span_id)
    told = {"raymc.job_id": job.job_id, "raymc.user": job.user, "raymc.state": job.state.value}
    whole = span(trace.whole, context(trace.parent_id, remote=True), told)
    return [whole, *(span(step, inside, _told(step)) for step in trace.steps)]


def _told(step: Span) -> dict[str, AttributeValue]:
    told = {"raymc.attempt": step.attempt, "raymc.cluster": step.cluster}
    return {name: value for name, value in told.items() if value is not None}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
