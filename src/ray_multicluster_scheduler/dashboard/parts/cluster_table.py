"""All clusters in one table, a line for each: how they are and how full, and all about one on a click."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import cluster_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import StateChip, health_word
from ray_multicluster_scheduler.dashboard.parts.cluster_section import ClusterSection, OnDrain
from ray_multicluster_scheduler.dashboard.parts.job_list_address import address
from ray_multicluster_scheduler.dashboard.parts.resource_bar import SHOWN, ResourceBar, shares
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.views import ClusterView

_LIVE = tuple(state for state in JobState if state in LIVE)
#: What needs a look comes first.
_STATES = ("UNHEALTHY", "UNKNOWN", "DRAINED", "HEALTHY")


def _free(name: str) -> Callable[[ClusterView], float]:
    def share(cluster: ClusterView) -> float:
        found = next((each for each in shares(cluster) if each.name == name), None)
        return 1.0 if found is None else -found.free / found.total  # the one with most room first

    return share


#: The columns, with what they sort by.
COLUMNS: dict[str, Callable[[ClusterView], Any]] = {
    "name": lambda cluster: cluster.name,
    "state": lambda cluster: _STATES.index(health_word(cluster.health, drained=cluster.drained)),
    **{name: _free(name) for name in SHOWN},
    "jobs": lambda cluster: -cluster.live_jobs,
    "versions": lambda cluster: (cluster.ray_version or "", cluster.python_version or ""),
    "answers": lambda cluster: cluster.latency_s if cluster.problem is None and cluster.latency_s else 1e9,
}


def in_order(clusters: Sequence[ClusterView], column: str) -> list[str]:
    """Return the names of clusters, sorted by a column, and by name where that is the same."""
    return [each.name for each in sorted(clusters, key=lambda each: (COLUMNS[column](each), each.name))]


class ClusterTable(ui.element):
    """A table whose lines open. Elements are changed and moved, not built anew."""

    def __init__(self, page: Page, on_drain: OnDrain, *, opened: str | None) -> None:
        super().__init__("div")
        self._page = page
        self._on_drain = on_drain
        self._first = opened
        self._column = "state"
        self._clusters: Sequence[ClusterView] = ()
        self._order: list[str] = []
        self._rows: dict[str, _ClusterRows] = {}
        self._heads: dict[str, ui.element] = {}
        self.classes("plain-table cluster-table").props("tabindex=0")
        with self:
            self._table = ui.element("table").props("role=table")
        with self._table, ui.element("thead").props("role=rowgroup"), ui.element("tr").props("role=row"):
            for column in COLUMNS:
                self._head(column)
        self._mark()

    def show(self, clusters: Sequence[ClusterView]) -> None:
        """Show these."""
        self._clusters = clusters
        for gone in self._rows.keys() - {each.name for each in clusters}:
            self._rows.pop(gone).delete()
        for cluster in clusters:
            if cluster.name not in self._rows:
                with self._table:
                    self._rows[cluster.name] = _ClusterRows(self._page, cluster.name, self._on_drain)
                    self._order = []
            self._rows[cluster.name].show(cluster)
        self._sort()
        if self._first in self._rows:
            self._rows[self._first].toggle()
            self._first = None

    def _head(self, column: str) -> None:
        def sort() -> None:
            self._column = column
            self._mark()
            self._sort()

        with ui.element("th").props("scope=col role=columnheader") as self._heads[column]:
            text = self._page.t(f"clusters.by_{column}")
            button = ui.button(text, color=None, on_click=sort).classes("sort")
            button.props(f"flat dense no-caps data-test=sort-{column}")
            button.props["title"] = self._page.t("clusters.sort", column=text)

    def _mark(self) -> None:
        for column, head in self._heads.items():
            head.props["aria-sort"] = "ascending" if column == self._column else "none"

    def _sort(self) -> None:
        order = in_order(self._clusters, self._column)
        if order != self._order:
            self._order = order
            for index, name in enumerate(order, start=1):  # the head of the table is before them
                self._rows[name].move(target_index=index)


class _ClusterRows(ui.element):
    """A line of the table, and the line below it with all about the cluster, built when it is opened."""

    def __init__(self, page: Page, name: str, on_drain: OnDrain) -> None:
        super().__init__("tbody")
        self.props("role=rowgroup")
        self._page, self._name, self._on_drain = page, name, on_drain
        self._cluster: ClusterView | None = None
        self._section: ClusterSection | None = None
        self._texts: dict[str, ui.label] = {}
        with self:
            with ui.element("tr").props("role=row") as line:
                line.props["data-test"] = f"row-{name}"
                self._build()
            with ui.element("tr").props("role=row") as self._details:
                self._inside = ui.element("td").props(f"role=cell colspan={len(COLUMNS)}")
        self._details.set_visibility(False)

    def show(self, cluster: ClusterView) -> None:
        """Show how the cluster is now."""
        self._cluster, page = cluster, self._page
        self._health.show(health_word(cluster.health, drained=cluster.drained))
        self._put("problem", cluster.problem or cluster.drain_reason or "")
        self._put("tags", ", ".join(cluster.tags))
        found = {share.name: share for share in shares(cluster)}
        for name, bar in self._bars.items():
            bar.set_visibility(name in found)
            if name in found:
                bar.show(found[name])
        self._jobs.set_text(f"{cluster.live_jobs} / {cluster.max_running_jobs}")
        versions = f"{cluster.ray_version or '–'} · {cluster.python_version or '–'}"
        self._put("versions", versions if cluster.ray_version else page.t("common.unknown"))
        answered = cluster.problem is None and cluster.latency_s is not None
        self._put("answers", f"{1000 * (cluster.latency_s or 0.0):.0f} ms" if answered else "–")
        if self._section is not None and self._details.visible:
            self._section.show(cluster)

    def toggle(self) -> None:
        """Show all about the cluster, or no longer."""
        opened = not self._details.visible
        if opened and self._section is None:
            with self._inside:
                self._section = ClusterSection(self._page, self._name, self._on_drain)
        if opened and self._section is not None and self._cluster is not None:
            self._section.show(self._cluster)
        self._details.set_visibility(opened)
        self._button.props["aria-expanded"] = "true" if opened else "false"
        self._button.props["icon"] = "expand_more" if opened else "chevron_right"

    def _build(self) -> None:
        page, name = self._page, self._name
        with self._cell("name"):
            self._button = ui.button(name, icon="chevron_right", color=None, on_click=self._clicked)
            self._button.props("flat dense no-caps aria-expanded=false").classes("cluster-open")
            self._add_text("tags", "quiet")
        with self._cell("state"):
            self._health = StateChip(page)
            self._add_text("problem", "quiet two-lines")
        self._bars = {}
        for resource in SHOWN:
            with self._cell(resource):
                self._bars[resource] = ResourceBar(page, resource, short=True)
        with self._cell("jobs"):
            self._jobs = ui.link("", address(JobQuery(cluster=name, states=_LIVE)))
        for column in ("versions", "answers"):
            with self._cell(column):
                self._add_text(column)

    def _clicked(self) -> None:
        self.toggle()
        there = cluster_address(self._name) if self._details.visible else "/clusters"
        ui.run_javascript(f"history.replaceState(history.state, '', {json.dumps(there)})")

    def _cell(self, column: str) -> ui.element:
        cell = ui.element("td").props("role=cell").classes(f"cluster-{column}")
        cell.props["data-label"] = self._page.t(f"clusters.by_{column}")
        return cell

    def _add_text(self, name: str, classes: str = "") -> None:
        self._texts[name] = ui.label().classes(classes)

    def _put(self, name: str, text: str) -> None:
        self._texts[name].set_text(text)
        self._texts[name].set_visibility(bool(text))
