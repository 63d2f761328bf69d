"""A cluster on the pages: a card, a row of a table, and everything about it in one section."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml
from nicegui import ui

from ray_multicluster_scheduler.cluster_health.diagnosis import Check
from ray_multicluster_scheduler.config.load import ConfigChange
from ray_multicluster_scheduler.dashboard.addresses import cluster_address
from ray_multicluster_scheduler.dashboard.chips import (
    SHOWN,
    ResourceBar,
    Sparkline,
    StateChip,
    When,
    health_word,
    resources_text,
    shares,
)
from ray_multicluster_scheduler.dashboard.dialogs import heading
from ray_multicluster_scheduler.dashboard.job_list_address import address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.tables import PlainTable, Row, WideTable
from ray_multicluster_scheduler.model.cluster import Health, Node
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.views import ClusterView

# Labels, configuration and changes of clusters as text.


#: Ray gives each node a label of its own name, which says nothing to people.
_OWN_LABEL = "ray.io/node-id"


def labels_text(labels: Mapping[str, str]) -> str:
    """Return the labels of a node in one line."""
    return " · ".join(f"{name}={value}" for name, value in sorted(labels.items()) if name != _OWN_LABEL)


def web_address(address: str) -> str | None:
    """Return an address that may become a link; None: it is none for a browser, such as `javascript:`."""
    return address if urlsplit(address).scheme in ("http", "https") else None


def as_yaml(value: Mapping[str, Any]) -> str:
    """Return a part of the configuration as it could stand in the file."""
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, default_flow_style=False)


def change_text(page: Page, change: ConfigChange) -> str:
    """Say what a new configuration has changed."""
    parts = (
        ("clusters.added", change.added),
        ("clusters.changed", change.changed),
        ("clusters.removed", change.removed),
        ("clusters.changed_settings", change.settings),
    )
    texts = [page.t(key, names=", ".join(names)) for key, names in parts if names]
    return page.t("clusters.reloaded", changes=" ".join(texts) or page.t("clusters.same"))


# Everything about one cluster: why it gets jobs or not, its machines, and what waits inside Ray.


#: Called with the cluster as it is shown.
OnDrain = Callable[[ClusterView], None]
#: Nodes on one page of the table.
NODES = 20


class ClusterSection(ui.element):
    """All about one cluster."""

    def __init__(self, page: Page, name: str, on_drain: OnDrain) -> None:
        super().__init__("div")
        self.classes("stack cluster-section")
        self._page = page
        self._cluster: ClusterView | None = None
        self.props["data-test"] = f"cluster-{name}"
        with self:
            with ui.element("div").classes("line cluster-actions"):
                if page.visitor.may(Role.SUBMIT):
                    self._doctor_button(name)
                self._drain = self._drain_button(on_drain)
            self._problem = _Note()
            self._drained = _Note()
            self._throttle = _Note()
            self._others = _Note()
            self._facts = _Facts(page)
            self._links(name)
            columns = [page.t(f"clusters.doctor_{column}") for column in ("check", "verdict", "says")]
            self._checks = PlainTable(columns)
            self._checks.props("data-test=checks").set_visibility(False)
            heading(page.t("clusters.nodes"), level=3)
            self._nodes_unknown = ui.label(page.t("clusters.nodes_unknown")).classes("quiet")
            self._nodes = _nodes_table(page)
            heading(page.t("clusters.pending"), level=3)
            self._pending_unknown = ui.label(page.t("clusters.pending_unknown")).classes("quiet")
            headings = [page.t("clusters.resources"), page.t("clusters.times")]
            self._pending = PlainTable(headings, empty=page.t("clusters.pending_empty"))

    def _doctor_button(self, name: str) -> None:
        page = self._page

        async def run() -> None:
            button.props("loading disable")
            try:
                reports = await page.act(Role.SUBMIT, lambda service: service.run_doctor([name]), done="")
            finally:
                button.props(remove="loading disable")
            if reports is None or self.is_deleted:  # refused, or the visitor has left
                return
            for report in reports:
                self._checks.show([_check_row(page, check) for check in report.checks])

        button = ui.button(page.t("clusters.doctor"), color=None, on_click=run)
        button.props("outline dense no-caps data-test=doctor").classes("cluster-button")
        button.tooltip(page.t("clusters.doctor_about"))

    def _drain_button(self, on_drain: OnDrain) -> ui.button | None:
        if not self._page.visitor.may(Role.OPERATE):
            return None
        button = ui.button(color=None).props("outline dense no-caps data-test=drain")
        button.classes("cluster-button")
        button.on_click(lambda: None if self._cluster is None else on_drain(self._cluster))
        return button

    def _links(self, name: str) -> None:
        with ui.element("div").classes("line"):
            ui.link(self._page.t("clusters.jobs"), address(JobQuery(cluster=name)))
            ui.link(self._page.t("clusters.timeline"), "/timeline?" + urlencode({"cluster": name}))
            # Its target is set when it is known; a cluster may get another address by a new configuration.
            self._dashboard = ui.link(self._page.t("clusters.dashboard"), "", new_tab=True)
            self._dashboard.props("rel=noopener")

    def show(self, cluster: ClusterView) -> None:
        """Show how the cluster is now."""
        self._cluster, page = cluster, self._page
        if self._drain is not None:
            self._drain.set_text(page.t("clusters.undrain" if cluster.drained else "clusters.drain"))
        self._problem.show(cluster.problem or "", cluster.observed_at)
        why = cluster.drain_reason or page.t("clusters.no_reason")
        self._drained.show(page.t("clusters.drained", why=why) if cluster.drained else "", cluster.drained_at)
        self._throttle.show("" if cluster.throttle is None else self._throttled(cluster), None)
        self._others.show(self._claims_of_others(cluster), None)
        self._facts.show(cluster)
        address = web_address(cluster.dashboard)
        self._dashboard.set_visibility(address is not None)
        if self._dashboard.props.get("href") != (address or ""):
            self._dashboard.props["href"] = address or ""
        self._show_nodes(cluster)
        self._show_pending(cluster)

    def _throttled(self, cluster: ClusterView) -> str:
        return self._page.t("clusters.throttled", jobs=cluster.throttle, why=cluster.throttle_reason)

    def _claims_of_others(self, cluster: ClusterView) -> str:
        claims = resources_text(self._page.words, cluster.claimed_by_others)
        return self._page.t("clusters.others", claims=claims) if claims else ""

    def _show_nodes(self, cluster: ClusterView) -> None:
        rows = [_node_row(self._page, node) for node in cluster.nodes or ()]
        self._nodes_unknown.set_visibility(not rows)
        self._nodes.set_visibility(bool(rows))
        self._nodes.show(rows)

    def _show_pending(self, cluster: ClusterView) -> None:
        known = cluster.pending is not None
        self._pending_unknown.set_visibility(not known)
        self._pending.set_visibility(known)
        words, pending = self._page.words, cluster.pending or ()
        rows = [(resources_text(words, each.resources), str(each.count)) for each in pending]
        self._pending.show([(row, row) for row in rows])


class _Note(ui.element):
    """A sentence about trouble, and since when."""

    def __init__(self) -> None:
        super().__init__("div")
        self.classes("line cluster-note")
        with self:
            self._why, self._since = ui.label(), When()

    def show(self, text: str, since: float | None) -> None:
        self.set_visibility(bool(text))
        self._why.set_text(text)
        self._since.show(since)


class _Facts(ui.element):
    """What is known of a cluster, and what is configured, each in a few words."""

    def __init__(self, page: Page) -> None:
        super().__init__("dl")
        self.classes("cluster-facts")
        self._page = page
        self._texts: dict[str, ui.label] = {}
        with self:
            for name in ("ray", "python", "resources", "head", "dashboard_address"):
                self._fact(name)
            with self._term("seen"):
                self._seen = When()
                self._latency = ui.label().classes("quiet")
            for name in ("ours", "tags", "weight", "prefer"):
                self._fact(name)

    def _term(self, name: str) -> ui.element:
        with ui.element("div"):
            with ui.element("dt"):
                ui.label(self._page.t(f"clusters.{name}"))
            return ui.element("dd")

    def _fact(self, name: str) -> None:
        with self._term(name):
            self._texts[name] = ui.label()

    def show(self, cluster: ClusterView) -> None:
        page = self._page
        unknown, none = page.t("common.unknown"), page.t("common.none")
        total = unknown if cluster.total is None else resources_text(page.words, cluster.total) or none
        texts = {
            "ray": cluster.ray_version or unknown,
            "python": cluster.python_version or unknown,
            "resources": total,
            "head": cluster.head_address,
            "dashboard_address": cluster.dashboard,
            "ours": page.t("clusters.ours_of", jobs=cluster.live_jobs, most=cluster.max_running_jobs),
            "tags": ", ".join(cluster.tags) or none,
            "weight": f"{cluster.weight:g}",
            "prefer": page.t("clusters.yes" if cluster.prefer else "clusters.no"),
        }
        for name, text in texts.items():
            self._texts[name].set_text(text)
        self._seen.show(cluster.observed_at)
        answered = cluster.problem is None and cluster.latency_s is not None
        latency = f"{1000 * (cluster.latency_s or 0.0):.0f}"
        never = page.t("clusters.never") if cluster.observed_at is None else ""
        self._latency.set_text(page.t("clusters.latency", ms=latency) if answered else never)


def _check_row(page: Page, check: Check) -> Row:
    """Show one line of the doctor; its sentences are those of `raymc doctor`."""
    verdict = page.t(f"clusters.verdict_{check.verdict.value}")
    says = f"{check.says}\n→ {check.advice}" if check.advice else check.says
    return check, (check.name, verdict, lambda: ui.label(says).classes("lines"))


def _nodes_table(page: Page) -> WideTable:
    names = ("address", "alive", "head_node", "resources", "labels")
    headings = {name: page.t(f"clusters.{name}") for name in names}
    return WideTable(headings, label=page.t("clusters.nodes"), page_rows=NODES, kinds={"alive": "state"})


def _node_row(page: Page, node: Node) -> dict[str, Any]:
    return {
        "key": node.node_id,
        "address": node.address,
        "word": "HEALTHY" if node.alive else "UNHEALTHY",
        "alive": page.t("clusters.is_alive" if node.alive else "clusters.is_dead"),
        "head_node": page.t("clusters.yes") if node.is_head else "",
        "resources": resources_text(page.words, node.resources),
        "labels": labels_text(node.labels),
    }


# A cluster at a glance: health, versions, how full it is, what runs there, and how fast it answers.


_LIVE = tuple(state for state in JobState if state in LIVE)


class ClusterCard(ui.card):
    """One card of the overview."""

    def __init__(self, page: Page, name: str) -> None:
        super().__init__()
        self._page = page
        self._bars: dict[str, ResourceBar] = {}
        with self:
            with ui.element("div").classes("line spread"):
                ui.link(name, cluster_address(name)).classes("raymc-subtitle")
                self._health = StateChip(page)
            with ui.element("div").classes("line") as self._trouble:
                self._why = ui.label()
                self._since = When()
            self._versions = ui.label().classes("quiet")
            self._resources = ui.element("div").style("display: grid; gap: .5rem; width: 100%")
            self._others = ui.label().classes("quiet")
            self._unknown = ui.label(page.t("overview.resources_unknown")).classes("quiet")
            with ui.element("div").classes("line spread"):
                self._jobs = ui.link("", address(JobQuery(cluster=name, states=_LIVE)))
                with ui.element("div").classes("line").style("width: auto; align-items: center"):
                    self._latency = ui.label().classes("quiet")
                    self._curve = Sparkline()

    def show(self, cluster: ClusterView, latencies: Sequence[float | None]) -> None:
        """Show how the cluster is now."""
        page = self._page
        self._health.show(health_word(cluster.health, drained=cluster.drained))
        self._show_trouble(cluster)
        versions = [
            f"Ray {cluster.ray_version}" if cluster.ray_version else "",
            f"Python {cluster.python_version}" if cluster.python_version else "",
            ", ".join(cluster.tags),
        ]
        self._versions.set_text(" · ".join(filter(None, versions)) or page.t("overview.versions_unknown"))
        self._show_bars(cluster)
        self._jobs.set_text(
            page.t("overview.live_jobs", jobs=cluster.live_jobs, most=cluster.max_running_jobs)
        )
        latency_s = cluster.latency_s if cluster.problem is None else None
        text = "" if latency_s is None else page.t("overview.latency", ms=f"{1000 * latency_s:.0f}")
        self._latency.set_text(text)
        self._curve.show(latencies, text or page.t("overview.no_answer"))

    def _show_trouble(self, cluster: ClusterView) -> None:
        """Say why a cluster gets no jobs, and since when."""
        page, why, since = self._page, "", None
        if cluster.health is not Health.HEALTHY:
            why = cluster.problem or page.t("overview.never_seen")
            since = cluster.observed_at
        elif cluster.drained:
            why = page.t("overview.drained", why=cluster.drain_reason or page.t("overview.no_reason"))
            since = cluster.drained_at
        elif cluster.throttle is not None:
            why = cluster.throttle_reason
        self._trouble.set_visibility(bool(why))
        self._why.set_text(why)
        self._since.show(since)

    def _show_bars(self, cluster: ClusterView) -> None:
        found = {share.name: share for share in shares(cluster)}
        for gone in self._bars.keys() - found.keys():
            self._bars.pop(gone).delete()
        for name, share in found.items():
            if name not in self._bars:
                with self._resources:
                    self._bars[name] = ResourceBar(self._page, name)
            self._bars[name].show(share)
        self._unknown.set_visibility(not found)
        others = resources_text(self._page.words, cluster.claimed_by_others)
        self._others.set_visibility(bool(others))
        self._others.set_text(self._page.t("clusters.others", claims=others))


# All clusters in one table, a line for each: how they are and how full, and all about one on a click.


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
