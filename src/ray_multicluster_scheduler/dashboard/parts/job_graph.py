"""The relations of a job as a small graph, and as a list for whoever does not see it or has no mouse."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import events, ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import StateChip
from ray_multicluster_scheduler.dashboard.parts.job_relations import (
    KINDS,
    MOST_ON_A_SIDE,
    Relations,
    chart,
    height_px,
    shown_name,
)
from ray_multicluster_scheduler.service.views import JobView


class JobGraph(ui.element):
    """A graph whose nodes open their jobs, and the same as lists of links."""

    def __init__(self, page: Page) -> None:
        super().__init__("div")
        self.classes("stack")
        self._page = page
        self._drawn: object = None
        self._listed: dict[str, tuple[ui.element, ui.element]] = {}
        self._keys: dict[str, object] = {}
        with self:
            self._chart = ui.echart({}, on_point_click=self._open).props("aria-hidden=true")
            self._chart.classes("job-graph")
            self._more = ui.label(page.t("job.relations_more", shown=MOST_ON_A_SIDE)).classes("quiet")
            with ui.element("div").classes("relations").props("data-test=job-relations"):
                for kind in KINDS:
                    self._listed[kind] = self._list(kind)

    def show(self, job: JobView, relations: Relations) -> None:
        """Show these; what has not changed is left alone."""
        drawn = chart(job, relations)
        if drawn != self._drawn:
            self._drawn = drawn
            self._chart.style(f"height: {height_px(relations)}px")
            self._chart.options.clear()
            self._chart.options.update(drawn)
            self._chart.update()
        self._more.set_visibility(relations.more)
        for kind, (box, items) in self._listed.items():
            jobs = relations.kinds.get(kind, {})
            key = [(name, shown_name(name, other), other and other.state) for name, other in jobs.items()]
            box.set_visibility(bool(jobs))
            if key != self._keys.get(kind):
                self._keys[kind] = key
                self._fill(items, jobs)

    def _list(self, kind: str) -> tuple[ui.element, ui.element]:
        with ui.element("div") as box:
            ui.label(self._page.t(f"job.{kind}")).classes("quiet").props("role=heading aria-level=3")
            items = ui.element("ul")
        return box, items

    def _fill(self, items: ui.element, jobs: Mapping[str, JobView | None]) -> None:
        items.clear()
        with items:
            for name, other in jobs.items():
                with ui.element("li"):
                    if other is None:
                        ui.label(name)
                        ui.label(self._page.t("job.unknown_job")).classes("quiet")
                    else:
                        ui.link(shown_name(name, other), job_address(name))
                        StateChip(self._page).show(other.state.value)

    def _open(self, event: events.EChartPointClickEventArguments) -> None:
        if event.data_type == "node":
            ui.navigate.to(job_address(str(event.name)))
