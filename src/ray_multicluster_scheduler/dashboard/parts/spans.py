"""Arranges attempts on a timeline: which lane each one is drawn in, and how full its cluster was."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from ray_multicluster_scheduler.dashboard.parts.colours import STATE_COLOURS, user_colours
from ray_multicluster_scheduler.model.job import own_name
from ray_multicluster_scheduler.service.views import ClusterView, SpanView, TimelineView

#: How an attempt is shown that has ended in another way than its job can; what is not here has failed.
_ENDS = {
    "SUCCEEDED": "SUCCEEDED",
    "STOPPED": "STOPPED",
    "LOST": "LOST",
    "ABANDONED": "LOST",
    "REPLACED": "LOST",
    "NOT_SENT": "STOPPED",
    "NOT_STARTED": "STOPPED",
}
#: The table below the chart shows so many.
NEWEST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What the page shows. `drawing` stays equal as long as nothing but the time has changed."""

    until: float
    #: What the browser draws, as JSON; times are in milliseconds, as JavaScript has them.
    drawing: dict[str, Any]
    newest: tuple[SpanView, ...]
    truncated: bool


def shown_state(span: SpanView) -> str:
    """Return the state of one attempt: its job's while it lives, and then how it ended."""
    return span.state.value if span.outcome is None else _ENDS.get(span.outcome, "FAILED")


def span_name(span: SpanView) -> str:
    """Return the name that the user gave to the job, or else its id."""
    return own_name(span.job_id) or span.submission_id


def lanes(spans: Sequence[SpanView]) -> list[int]:
    """Return a lane for each span, from 0, as few as possible: no two in one lane overlap.

    `spans` are in the order in which they were placed. The lowest free lane is taken, so what is drawn stays
    where it is when newer spans come.
    """
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    found = []
    for span in spans:
        while taken and taken[0][0] <= span.placed_at:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (inf if span.ended_at is None else span.ended_at, lane))
        found.append(lane)
    return found


def utilisation(spans: Sequence[SpanView], total_cpu: float, *, since: float) -> list[tuple[float, float]]:
    """Return how much of a cluster's CPUs is claimed, in percent, as the steps (time, from then on).

    A claim is held from the placement to the end. More than 100 is possible: the cluster was larger then.
    """
    changes: dict[float, float] = defaultdict(float, {since: 0.0})
    for span in spans:
        claim = span.claim.get("CPU", 0.0)
        changes[max(span.placed_at, since)] += claim
        if span.ended_at is not None:
            changes[max(span.ended_at, span.placed_at, since)] -= claim
    steps: list[tuple[float, float]] = []
    claimed = 0.0
    for at in sorted(changes):
        claimed += changes[at]
        percent = round(100 * claimed / total_cpu, 1) + 0.0  # no -0.0
        if not steps or steps[-1][1] != percent:
            steps.append((at, percent))
    return steps


def picture(view: TimelineView, clusters: Sequence[ClusterView], only: str | None) -> Picture:
    """Return what to draw: a band for each cluster, or for one, with its curve and its lanes."""
    totals = {each.name: (each.total or {}).get("CPU") for each in clusters}
    totals |= {span.cluster: None for span in view.spans if span.cluster not in totals}
    by_cluster: Mapping[str, list[SpanView]] = {name: [] for name in totals if only in (None, name)}
    for span in view.spans:
        by_cluster[span.cluster].append(span)
    # Nothing is said of a time whose attempts were left out.
    since = view.spans[0].placed_at if view.truncated else view.since
    return Picture(
        until=view.until,
        drawing={
            "bands": [_band(name, found, totals[name], since) for name, found in by_cluster.items()],
            "colours": {
                "state": STATE_COLOURS,
                "user": user_colours({span.user for span in view.spans}),
            },
            "states": sorted({shown_state(span) for span in view.spans}),
        },
        newest=view.spans[: -NEWEST - 1 : -1],
        truncated=view.truncated,
    )


def _band(name: str, spans: Sequence[SpanView], total_cpu: float | None, since: float) -> dict[str, Any]:
    found = lanes(spans)
    steps = utilisation(spans, total_cpu, since=since) if total_cpu else []
    return {
        "name": name,
        "cpus": total_cpu,
        "lanes": max(found, default=0) + 1,
        "curve": [(_ms(at), percent) for at, percent in steps],
        "spans": [_row(span, lane) for span, lane in zip(spans, found, strict=True)],
    }


def _row(span: SpanView, lane: int) -> tuple[object, ...]:
    times = (_ms(span.placed_at), _ms(span.started_at), _ms(span.ended_at))
    return (lane, *times, span.submission_id, span_name(span), span.user, shown_state(span), span.attempt)


def _ms(at: float | None) -> int | None:
    return None if at is None else round(1000 * at)
