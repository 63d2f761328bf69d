"""When which job ran on which cluster, and how full the clusters were."""

from __future__ import annotations

import heapq
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any
from urllib.parse import urlencode

from nicegui import ui
from nicegui.element import Element
from nicegui.elements import echart  # noqa: F401 - makes its library known, which the component uses

from ray_multicluster_scheduler.dashboard.chips import PALETTE, STATE_COLOURS, state_text, user_colours
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.tables import WideTable
from ray_multicluster_scheduler.model.job import own_name
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import ClusterView, SpanView, TimelineView

# Arranges attempts on a timeline: which lane each one is drawn in, and how full its cluster was.


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
        "spans": [_span_row(span, lane) for span, lane in zip(spans, found, strict=True)],
    }


def _span_row(span: SpanView, lane: int) -> tuple[object, ...]:
    times = (_ms(span.placed_at), _ms(span.started_at), _ms(span.ended_at))
    return (lane, *times, span.submission_id, span_name(span), span.user, shown_state(span), span.attempt)


def _ms(at: float | None) -> int | None:
    return None if at is None else round(1000 * at)


# The drawn timeline. What is drawn is worked out here; `timeline_chart.js` puts it on the canvas.


_WORDS = (
    "user",
    "cluster",
    "state",
    "attempt",
    "placed",
    "started",
    "ended",
    "duration",
    "claimed",
    "no_cpus",
)


class TimelineChart(Element, component="timeline_chart.js"):
    """Bars of attempts in lanes, cluster by cluster, below a curve of how full the cluster is.

    NiceGUI's own chart sends all options for each change, and would lose what a person has zoomed to.
    """

    def __init__(self, page: Page, colouring: str) -> None:
        super().__init__()
        self.classes("timeline-chart")
        self._props |= {
            "colouring": colouring,
            "words": {word: page.t(f"timeline.{word}") for word in _WORDS},
            "states": {word: state_text(page, word) for word in STATE_COLOURS},
            "drawing": None,
            "range": None,
            "role": "img",
        }

    def show(self, drawing: dict[str, Any], since: float, until: float, *, label: str) -> None:
        """Draw this between these times. If nothing but the time has changed, only that is sent.

        `label` says in words what is drawn, for those who do not see it.
        """
        between = [round(1000 * since), round(1000 * until)]
        if self._props["drawing"] == drawing:
            self.run_method("move_to", between)
            return
        self._props |= {"drawing": drawing, "range": between, "aria-label": label}
        self.update()

    def colour_by(self, colouring: str) -> None:
        """Colour the bars by `state` or by `user`."""
        self._props["colouring"] = colouring
        self.update()


#: How far back one can look, in seconds.
WINDOWS = (900, 3600, 6 * 3600, 24 * 3600)
COLOURINGS = ("state", "user")
#: The least time between two drawings, of all pages at once.
GAP_S = 3.0
#: What is read begins at a multiple of this part of the window. So spans that fall out of it on the left do
#: not let the others change their lanes in every drawing.
STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the address chooses."""

    window_s: int = 3600
    cluster: str | None = None
    colouring: str = "state"

    @property
    def address(self) -> str:
        """The address of the page that shows this."""
        chosen = {"window": self.window_s, "cluster": self.cluster, "colour": self.colouring}
        return "/timeline?" + urlencode({key: value for key, value in chosen.items() if value is not None})


def view_of(query: Mapping[str, str]) -> View:
    """Return what an address chooses; what it does not say, or says wrongly, is as usual."""
    window, colouring = query.get("window", ""), query.get("colour", "")
    known = {str(each): each for each in WINDOWS}
    return View(
        window_s=known.get(window, View().window_s),
        cluster=query.get("cluster") or None,
        colouring=colouring if colouring in COLOURINGS else View().colouring,
    )


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
    clusters = await page.read("clusters", lambda service: service.clusters())
    timeline = _Timeline(page, view_of(page.query), [each.name for each in clusters])
    await page.follow(timeline.refresh)


class _Timeline:
    """The elements that change."""

    def __init__(self, page: Page, view: View, clusters: Sequence[str]) -> None:
        self._page, self._view = page, view
        self._turn: int | None = None
        self._picture: Picture | None = None
        self._legend_shows: list[tuple[str, str]] | None = None
        self._choices(clusters)
        with ui.card():
            self._note = ui.label().classes("raymc-banner").props("role=status data-test=timeline-truncated")
            self._empty = ui.label(page.t("timeline.empty")).props("data-test=timeline-empty")
            self._chart = TimelineChart(page, view.colouring).props("data-test=timeline-chart")
            self._legend = ui.element("div").classes("line timeline-legend")
            self._hint = ui.label(page.t("timeline.hint")).classes("quiet")
        with ui.expansion(page.t("timeline.table"), on_value_change=self._fill_table) as self._expansion:
            self._table = _table(page)
        self._expansion.classes("timeline-table").props("data-test=timeline-table")

    def _choices(self, clusters: Sequence[str]) -> None:
        page, view = self._page, self._view
        windows = {each: page.t(f"timeline.window_{each}") for each in WINDOWS}
        names = {"": page.t("timeline.all_clusters")} | {name: name for name in clusters}
        if view.cluster:
            names |= {view.cluster: view.cluster}
        colourings = {each: page.t(f"timeline.by_{each}") for each in COLOURINGS}
        with ui.element("div").classes("line timeline-choices"):
            with _group(page.t("timeline.window")):
                toggle = ui.toggle(
                    windows, value=view.window_s, on_change=lambda e: self._choose(window_s=e.value)
                )
                toggle.props("no-caps unelevated data-test=timeline-window")
            with _group(page.t("timeline.colouring")):
                toggle = ui.toggle(
                    colourings, value=view.colouring, on_change=lambda e: self._choose(colouring=e.value)
                )
                toggle.props("no-caps unelevated data-test=timeline-colour")
            select = ui.select(
                names,
                value=view.cluster or "",
                label=page.t("common.cluster"),
                on_change=lambda e: self._choose(cluster=e.value or None),
            )
            select.props("outlined dense options-dense data-test=timeline-cluster").style("min-width: 12rem")

    async def _choose(self, **changes: Any) -> None:
        if changes.get("window_s", 0) is None or changes.get("colouring", "") is None:
            return  # no button sends that
        self._view = replace(self._view, **changes)
        ui.navigate.history.replace(self._view.address)
        self._chart.colour_by(self._view.colouring)
        await self._page.now(self._draw)

    async def refresh(self) -> None:
        """Draw what there is now, unless that was done a moment ago."""
        turn = int(time.monotonic() / GAP_S)  # the same for all pages, so that they share what is read
        if turn != self._turn:
            self._turn = turn
            await self._draw()

    async def _draw(self) -> None:
        view = self._view
        key = ("timeline", view.window_s, view.cluster)
        found = await self._page.read(key, lambda service: _picture(service, view.window_s, view.cluster))
        if view != self._view:
            return  # somebody has chosen something else meanwhile, and that is drawn
        self._picture = found
        spans = sum(len(band["spans"]) for band in found.drawing["bands"])
        label = self._page.t("timeline.picture", spans=spans, clusters=len(found.drawing["bands"]))
        self._chart.show(found.drawing, found.until - view.window_s, found.until, label=label)
        self._empty.set_visibility(not spans)
        for element in (self._chart, self._legend, self._hint, self._expansion):
            element.set_visibility(bool(spans))
        self._note.set_visibility(found.truncated)
        self._note.set_text(self._page.t("timeline.truncated", spans=spans))
        self._show_legend(found)
        self._fill_table()

    def _show_legend(self, found: Picture) -> None:
        if self._view.colouring == "user":
            colours = found.drawing["colours"]["user"]
            entries = list(colours.items())[: len(PALETTE)]  # the others share these colours
            more = len(colours) - len(entries)
        else:
            states = found.drawing["states"]
            entries = [(state_text(self._page, word), STATE_COLOURS[word]) for word in states]
            more = 0
        if entries == self._legend_shows:
            return
        self._legend_shows = entries
        self._legend.clear()
        with self._legend:
            for text, colour in entries:
                with ui.element("div").classes("timeline-key"):
                    ui.element("span").style(f"background: {colour}").props("aria-hidden=true")
                    ui.label(text)
            if more:
                ui.label(self._page.t("timeline.more_users", users=more))
            ui.label(self._page.t("timeline.lighter")).classes("quiet")

    def _fill_table(self) -> None:
        if self._picture is not None and self._expansion.value:
            self._table.show([_row(self._page, span) for span in self._picture.newest])


def _picture(service: LocalService, window_s: int, cluster: str | None) -> Picture:
    step = window_s // STEPS
    since = (time.time() - window_s) // step * step
    return picture(service.timeline(since=since, cluster=cluster), service.clusters(), cluster)


def _group(label: str) -> ui.element:
    group = ui.element("div").props("role=group")
    group.props["aria-label"] = label
    return group


def _table(page: Page) -> WideTable:
    names = ("job", "user", "cluster", "state", "placed", "duration")
    headings = {name: page.t(f"timeline.{name}") for name in names}
    kinds = {"job": "job", "state": "state", "placed": "moment", "duration": "lasting"}
    return WideTable(headings, label=page.t("timeline.table"), page_rows=NEWEST, kinds=kinds)


def _row(page: Page, span: SpanView) -> dict[str, object]:
    word = shown_state(span)
    return {
        "key": f"{span.submission_id}/{span.attempt}",
        "id": span.submission_id,
        "job": span_name(span),
        "user": span.user,
        "cluster": span.cluster,
        "word": word,
        "state": state_text(page, word),
        "placed": span.placed_at,
        "duration": span.started_at or span.placed_at,
        "to": span.ended_at,
    }
