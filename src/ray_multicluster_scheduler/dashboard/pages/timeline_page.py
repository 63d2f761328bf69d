"""When which job ran on which cluster, and how full the clusters were."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import state_text
from ray_multicluster_scheduler.dashboard.parts.colours import PALETTE, STATE_COLOURS
from ray_multicluster_scheduler.dashboard.parts.spans import NEWEST, Picture, picture, shown_state, span_name
from ray_multicluster_scheduler.dashboard.parts.timeline_chart import TimelineChart
from ray_multicluster_scheduler.dashboard.parts.wide_table import WideTable
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.views import SpanView

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
