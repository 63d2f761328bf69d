"""OpenTelemetry traces of jobs (extra `traces`): off unless the environment says where they go.

The variables are OpenTelemetry's own: `OTEL_EXPORTER_OTLP_ENDPOINT` and its relatives.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.config.installed import how_to_install
from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.model.states import FINAL
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.job_trace import JobTrace, Moment, Span, trace_of

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.util.types import AttributeValue

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
